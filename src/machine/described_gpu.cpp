#include "machine/described_gpu.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr const char* kRemedy = "use one such as configs/gpus/h100.json, or an intact copy";

using Json = nlohmann::json;

Json parse_description(const std::filesystem::path& path, const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(!json.is_discarded() && json.is_object(), ExitCode::usage,
        "--gpu-description {}: is not a JSON object, as cuDNN describes a GPU; {}", path.string(), kRemedy);
  return json;
}

// A field of the description that is a number from 1 to `most`.
std::uint64_t number_of(const std::filesystem::path& path, const Json& json, const char* key, std::uint64_t most) {
  const auto found = json.find(key);
  const bool good = found != json.end() && found->is_number_unsigned() && found->get<std::uint64_t>() >= 1 &&
                    found->get<std::uint64_t>() <= most;
  check(good, ExitCode::usage, "--gpu-description {}: {} of \"{}\", as cuDNN describes a GPU; {}", path.string(),
        found == json.end() ? "has no value" : "has an impossible value", key, kRemedy);
  return found->get<std::uint64_t>();
}

}  // namespace

GpuDescription read_gpu_description(const std::filesystem::path& path) {
  constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 50U;
  constexpr std::uint64_t kMostVersion = 99999;
  constexpr std::uint64_t kMostMultiprocessors = 100000;
  GpuDescription gpu;
  gpu.json = read_text(path, ExitCode::usage, kMostBytes);
  const Json json = parse_description(path, gpu.json);
  // 900 is compute capability 9.0, 1030 is 10.3.
  const auto version = static_cast<int>(number_of(path, json, "deviceVer", kMostVersion));
  gpu.major = version / 100;
  gpu.minor = version % 100 / 10;
  gpu.multiprocessors = static_cast<int>(number_of(path, json, "multiProcessorCount", kMostMultiprocessors));
  gpu.shared_bytes = static_cast<std::size_t>(number_of(path, json, "maxSharedMemoryPerBlockOptin", kMostMemory));
  gpu.total_bytes = number_of(path, json, "totalGlobalMem", kMostMemory);
  const auto name = json.find("deviceName");
  check(name != json.end() && name->is_string(), ExitCode::usage,
        "--gpu-description {}: has no \"deviceName\", as cuDNN describes a GPU; {}", path.string(), kRemedy);
  gpu.name = one_line(name->get<std::string>());
  return gpu;
}

Device describe_device(const Options& options, const GpuModuleOpener& open) {
  Device device;
  device.described = read_gpu_description(options.device.gpu_description);
  device.gpu_module = open();
  device.note = fmt::format("{} as described in {}, compute capability {}.{}, {}", device.described->name,
                            options.device.gpu_description, device.described->major, device.described->minor,
                            format_bytes(device.described->total_bytes));
  device.config = {.precision = options.model.precision,
                   .deterministic = options.optimizer.deterministic,
                   .memory_fraction = options.device.gpu_memory_fraction,
                   .memory_limit = options.device.gpu_memory_limit};
  return device;
}

}  // namespace ddp
