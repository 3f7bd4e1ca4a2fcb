#include "data/sources/picture_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr int kMostOpenShards = 256;

}  // namespace

FolderPictures::FolderPictures(std::filesystem::path folder, const std::vector<ListedFile>& files)
    : folder_(std::move(folder)) {
  for (const ListedFile& file : files) {
    files_.push_back(file.name);
    labels_.push_back(file.label);
  }
}

ShardPictures::ShardPictures(std::vector<Shard> shards, std::vector<Record> records)
    : shards_(std::move(shards)),
      records_(std::move(records)),
      descriptors_(std::make_unique<std::atomic<int>[]>(shards_.size())) {
  for (std::size_t i = 0; i < shards_.size(); ++i) descriptors_[i] = -1;
}

ShardPictures::~ShardPictures() {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (descriptors_[i] >= 0) ::close(descriptors_[i]);
  }
}

std::string ShardPictures::name(std::int64_t index) const {
  const Record& record = records_[static_cast<std::size_t>(index)];
  return fmt::format("{}: offset {}", shards_[static_cast<std::size_t>(record.shard)].path.string(), record.offset);
}

std::pair<int, bool> ShardPictures::open(std::size_t shard) const {
  if (const int known = descriptors_[shard]; known >= 0) return {known, false};
  const int opened = ::open(shards_[shard].path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (opened < 0) throw BadImage(fmt::format("cannot be opened: {}", errno_text(errno)));
  struct stat status {};
  if (::fstat(opened, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != shards_[shard].bytes) {
    ::close(opened);
    throw BadImage("its shard has another size than when it was indexed");
  }
  if (open_.fetch_add(1) >= kMostOpenShards) {
    open_.fetch_sub(1);
    return {opened, true};
  }
  int none = -1;
  // Another thread was faster.
  if (!descriptors_[shard].compare_exchange_strong(none, opened)) {
    open_.fetch_sub(1);
    ::close(opened);
    return {none, false};
  }
  return {opened, false};
}

void ShardPictures::load(std::int64_t index, ImageDecoder& decoder, bool upright) const {
  const Record& record = records_[static_cast<std::size_t>(index)];
  const auto shard = static_cast<std::size_t>(record.shard);
  const FileActivity activity("reading " + shards_[shard].path.string());
  const auto [descriptor, mine] = open(shard);
  const std::optional<Descriptor> closed = mine ? std::optional<Descriptor>(std::in_place, descriptor) : std::nullopt;
  if (record.bytes == 0) throw BadImage("is empty");
  const std::span<std::uint8_t> room = decoder.load_room(record.bytes, upright);
  const std::optional<std::size_t> found = read_at(descriptor, std::as_writable_bytes(room), record.offset);
  if (!found) throw BadImage(fmt::format("cannot be read: {}", errno_text(errno)));
  if (*found < room.size()) throw BadImage("is truncated");
}

}  // namespace ddp
