#include "checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ddp {
namespace {

constexpr const char* kFormat = "ddp_train checkpoint";

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& what) {
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: {}; the checkpoint is damaged, resume from another one", path.string(), what));
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["format_version"] = manifest.format_version;
  json["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, digest] : manifest.files) {
    json["files"][name] = {{"size", digest.size}, {"xxh3_128", digest.xxh3_128}};
  }
  return json.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::filesystem::path& path) {
  Manifest manifest;
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format").get<std::string>() != kFormat) damaged(path, "not the manifest of a checkpoint");
    const auto& version = json.at("format_version");
    if (!version.is_number_integer()) damaged(path, "the format version is not a number");
    manifest.format_version = version.get<int>();
    // Checked first, because the rest of another version may have any meaning.
    check(manifest.format_version == kCheckpointFormatVersion, ExitCode::checkpoint,
          "{}: the checkpoint has format version {}, this program reads version {}; resume with the ddp_train that "
          "wrote it",
          path.string(), manifest.format_version, kCheckpointFormatVersion);
    for (const auto& [name, entry] : json.at("files").items()) {
      if (name.empty() || name.find('/') != std::string::npos) damaged(path, "it names a file of another folder");
      if (!entry.at("size").is_number_unsigned()) damaged(path, "a size is not a number");
      manifest.files[name] = {entry.at("size").get<std::uint64_t>(), entry.at("xxh3_128").get<std::string>()};
    }
    if (to_json(manifest) != text) damaged(path, "not as it was written");
  } catch (const nlohmann::json::exception&) {
    damaged(path, "not a readable manifest");
  }
  return manifest;
}

}  // namespace ddp
