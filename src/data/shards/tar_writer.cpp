#include "data/shards/tar_writer.h"

#include <cstdint>
#include <system_error>
#include <utility>

#include "base/status/heartbeat.h"

namespace ddp {
namespace {

constexpr std::size_t kTarBlockBytes = 512;
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

std::filesystem::path part_of_file(const std::filesystem::path& path) { return path.string() + ".part"; }

}  // namespace

TarWriter::TarWriter(std::filesystem::path path, ExitCode code)
    : path_(std::move(path)), file_(part_of_file(path_), File::Mode::create, code) {}

void TarWriter::write(std::string_view text) {
  buffer_ += text;
  bytes_ += text.size();
  if (buffer_.size() < kBufferBytes) return;
  file_.write(std::string_view(buffer_));
  buffer_.clear();
  heartbeat();
}

void TarWriter::add(std::string_view name, std::string_view data) {
  DDP_ASSERT(name.size() <= 100);
  std::string block(kTarBlockBytes, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { block.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", data.size()));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  std::uint64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  write(block);
  write(data);
  write(std::string((kTarBlockBytes - data.size() % kTarBlockBytes) % kTarBlockBytes, '\0'));
}

void TarWriter::finish() {
  write(std::string(2 * kTarBlockBytes, '\0'));
  file_.write(std::string_view(buffer_));
  buffer_.clear();
  file_.sync();
  file_.close();
  std::error_code error;
  std::filesystem::rename(part_of_file(path_), path_, error);
  if (error) file_error(ExitCode::data, "write", path_, error.value());
}

}  // namespace ddp
