#include "data/shards/webdataset.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/formats/formats.h"
#include "data/images/image_decoder.h"
#include "data/shards/preference.h"
#include "data/shards/tar_reader.h"

namespace ddp {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 3> kLabels = {"cls", "json", "txt"};
constexpr std::array<const char*, 4> kJsonLabels = {"label", "class", "cls", "class_id"};
constexpr std::uint64_t kMostLabelBytes = 1 << 20;

// Its name up to the first dot of the last component, and the rest in lower case.
std::pair<std::string, std::string> key_and_field(const std::string& name) {
  const std::size_t slash = name.find_last_of('/') + 1;
  const std::size_t dot = name.find('.', slash);
  if (dot == std::string::npos || dot == slash) return {};
  return {name.substr(0, dot), lower_case(name.substr(dot + 1))};
}

// Nothing if the field has no picture. "image.jpg" counts after "jpg".
std::optional<std::size_t> picture_preference(const std::string& field, const std::string& wanted) {
  const std::span<const std::string_view> suffixes = picture_suffixes();
  if (!wanted.empty()) return preference(field, wanted, suffixes);
  if (const auto exact = preference("." + field, "", suffixes)) return exact;
  const std::size_t dot = field.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto last = preference(std::string_view(field).substr(dot), "", suffixes);
  return last ? std::optional(suffixes.size() + *last) : std::nullopt;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : "";
}

// "" if there is none.
std::string label_in_json(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return value.is_discarded() ? "" : text_of(value);
  for (const char* key : kJsonLabels) {
    if (const auto found = value.find(key); found != value.end()) return text_of(*found);
  }
  return "";
}

// The members of one sample.
struct Sample {
  std::string key;
  std::uint64_t begin = 0;
  std::optional<TarMember> picture, label;
  std::size_t picture_rank = 0;
  std::size_t label_rank = 0;
  std::string label_field;
};

class ShardScan {
 public:
  ShardScan(const File& file, const WebdatasetFields& fields) : file_(file), fields_(fields) {}

  void add(const TarMember& member) {
    if (!member.damage.empty()) {
      // A sample that lacks this member is not reported twice.
      if (!member.name.empty() && key_and_field(member.name).first == sample_.key) {
        sample_ = {};
      } else {
        finish();
      }
      index_.damaged.push_back({0, member.offset, member.damage});
      return;
    }
    auto [key, field] = key_and_field(member.name);
    if (key.empty()) return;
    if (key != sample_.key) {
      finish();
      sample_.key = key;
      sample_.begin = member.offset;
    }
    if (const auto rank = picture_preference(field, fields_.image);
        rank && (!sample_.picture || *rank < sample_.picture_rank)) {
      sample_.picture = member;
      sample_.picture_rank = *rank;
    }
    if (const auto rank = preference(field, fields_.label, kLabels);
        rank && (!sample_.label || *rank < sample_.label_rank)) {
      sample_.label = member;
      sample_.label_rank = *rank;
      sample_.label_field = field;
    }
  }

  void finish() {
    const Sample sample = std::exchange(sample_, {});
    // A member that is neither, such as a file of metadata, is no sample.
    if (!sample.picture && !sample.label) return;
    if (const std::string damage = append(sample); !damage.empty()) {
      index_.damaged.push_back({0, sample.begin, fmt::format("sample {} {}", escape_name(sample.key), damage)});
    }
  }

  RecordIndex take() { return std::move(index_); }

 private:
  // Returns what is wrong.
  std::string append(const Sample& sample) {
    if (!sample.picture) return "has no picture";
    if (!sample.label) return "has no label";
    if (sample.picture->bytes > kMaxImageFileBytes) return "has a picture of more than 1 GiB";
    if (sample.label->bytes > kMostLabelBytes) return "has a label of more than 1 MiB";
    std::string text(static_cast<std::size_t>(sample.label->bytes), '\0');
    if (file_.read_at(std::as_writable_bytes(std::span(text)), sample.label->offset) < text.size())
      return "is truncated";
    const bool json = sample.label_field == "json" || sample.label_field.ends_with(".json");
    const std::string label = json ? label_in_json(text) : trimmed(text);
    if (label.empty()) return fmt::format("has no label in its {}", escape_name(sample.label_field));
    const auto [found, added] = labels_.emplace(label, static_cast<std::int32_t>(labels_.size()));
    if (added) index_.labels.push_back(label);
    index_.records.push_back(
        {sample.picture->offset, static_cast<std::uint32_t>(sample.picture->bytes), 0, found->second});
    return "";
  }

  const File& file_;
  const WebdatasetFields& fields_;
  Sample sample_;
  RecordIndex index_;
  std::unordered_map<std::string, std::int32_t> labels_;
};

void check_plain(const File& file) {
  std::array<unsigned char, 4> head{};
  (void)file.read_at(std::as_writable_bytes(std::span(head)), 0);
  const bool gzip = head[0] == 0x1F && head[1] == 0x8B;
  const bool zstd = head[0] == 0x28 && head[1] == 0xB5 && head[2] == 0x2F && head[3] == 0xFD;
  check(
      !gzip && !zstd, ExitCode::data,
      "{}: is compressed, so that its samples cannot be read in any order; decompress it ({}), the pictures in it are "
      "compressed already",
      escape_name(file.path().string()), gzip ? "gunzip" : "unzstd");
}

}  // namespace

RecordIndex read_webdataset_shard(const std::filesystem::path& path, const WebdatasetFields& fields) {
  const File file(path, File::Mode::read, ExitCode::data);
  check_plain(file);
  TarReader tar(file);
  ShardScan scan(file, fields);
  while (const std::optional<TarMember> member = tar.next()) {
    check(tar.is_tar(), ExitCode::data, "{}: is no tar file; shards of WebDataset are", escape_name(path.string()));
    scan.add(*member);
    heartbeat();
  }
  scan.finish();
  return scan.take();
}

ShardFormat webdataset_format(const WebdatasetFields& fields) {
  return {.name = fmt::format("webdataset {} {}", fields.image, fields.label),
          .suffixes = {".tar"},
          .read = [fields](const std::filesystem::path& path) { return read_webdataset_shard(path, fields); }};
}

}  // namespace ddp
