#include "data/shards/tfrecord.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/file.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/images/image_decoder.h"
#include "data/shards/preference.h"

namespace ddp {
namespace {

constexpr std::array<std::string_view, 3> kImageKeys = {"image/encoded", "image", "image_raw"};
constexpr std::array<std::string_view, 3> kLabelKeys = {"image/class/label", "label", "class"};

// Fields of a message in the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding).
class ProtoMessage {
 public:
  explicit ProtoMessage(std::string_view bytes) : rest_(bytes) {}

  // Nothing at the end, and in damaged data, which whole() tells.
  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;      // of a varint
    std::string_view bytes = {};  // of a text, a message or a packed array
    bool has_bytes = false;
  };
  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t tag = varint();
    Field field{.number = tag >> 3U};
    switch (tag & 7U) {
      case 0:
        field.value = varint();
        break;
      case 1:
        (void)take(8);
        break;
      case 2:
        field.bytes = take(varint());
        field.has_bytes = true;
        break;
      case 5:
        (void)take(4);
        break;
      default:
        whole_ = false;
    }
    return whole_ ? std::optional(field) : std::nullopt;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    whole_ = false;
    return 0;
  }
  bool whole() const { return whole_; }

 private:
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) whole_ = false;
    if (!whole_) return {};
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  std::string_view rest_;
  bool whole_ = true;
};

// The field `number` of a message, the last one as the encoding has it.
std::string_view part_of(std::string_view message, std::uint64_t number) {
  ProtoMessage fields(message);
  std::string_view found;
  while (const auto field = fields.next()) {
    if (field->number == number && field->has_bytes) found = field->bytes;
  }
  return found;
}

// A label of Feature: bytes_list (1) or int64_list (3), of which it has one value.
std::string label_of(std::string_view feature) {
  if (const std::string_view texts = part_of(feature, 1); !texts.empty()) return trimmed(part_of(texts, 1));
  ProtoMessage numbers(part_of(feature, 3));
  const auto field = numbers.next();
  if (!field) return "";
  const std::uint64_t value = field->has_bytes ? ProtoMessage(field->bytes).varint() : field->value;
  return field->has_bytes && field->bytes.empty() ? "" : std::to_string(static_cast<std::int64_t>(value));
}

struct Example {
  std::string_view picture;
  std::string label;
  std::vector<std::string> keys;
};

Example parse_example(std::string_view data, const TfrecordKeys& wanted) {
  Example example;
  std::size_t best_image = std::numeric_limits<std::size_t>::max();
  std::size_t best_label = best_image;
  ProtoMessage features(part_of(data, 1));
  while (const auto entry = features.next()) {
    if (entry->number != 1 || !entry->has_bytes) continue;
    const std::string_view key = part_of(entry->bytes, 1);
    const std::string_view feature = part_of(entry->bytes, 2);
    if (example.keys.size() < 12) example.keys.push_back(escape_name(key));
    if (const auto rank = preference(key, wanted.image, kImageKeys); rank && *rank < best_image) {
      if (const std::string_view picture = part_of(part_of(feature, 1), 1); !picture.empty()) {
        best_image = *rank;
        example.picture = picture;
      }
    }
    if (const auto rank = preference(key, wanted.label, kLabelKeys); rank && *rank < best_label) {
      if (std::string label = label_of(feature); !label.empty()) {
        best_label = *rank;
        example.label = std::move(label);
      }
    }
  }
  return example;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = (value << 8U) | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string names(const std::string& wanted, const auto& known) {
  return wanted.empty() ? join(std::vector<std::string>(known.begin(), known.end()), " or ") : wanted;
}

void check_framing(const File& file, std::string_view head) {
  const bool gzip = head.starts_with("\x1F\x8B");
  const bool zlib = head.size() > 1 && head[0] == 'x' && (head[1] == '\x01' || head[1] == '\x9C' || head[1] == '\xDA');
  const std::string shown = escape_name(file.path().string());
  check(!gzip && !zlib, ExitCode::data,
        "{}: is compressed, so that its records cannot be read in any order; write it without compression, the "
        "pictures in "
        "it are compressed already",
        shown);
  throw Error(ExitCode::data, fmt::format("{}: is no TFRecord file: its first length has another checksum", shown));
}

}  // namespace

RecordIndex read_tfrecord_shard(const std::filesystem::path& path, const TfrecordKeys& keys) {
  constexpr std::uint64_t kHead = 12;
  constexpr std::uint64_t kTail = 4;
  const File file(path, File::Mode::read, ExitCode::data);
  const std::uint64_t end = file.size();
  RecordIndex index;
  std::unordered_map<std::string, std::int32_t> labels;
  std::string data;
  for (std::uint64_t at = 0; at < end;) {
    heartbeat();
    const auto damaged = [&, at](std::string reason) { index.damaged.push_back({0, at, std::move(reason)}); };
    std::string head(kHead, '\0');
    head.resize(file.read_at(std::as_writable_bytes(std::span(head)), at));
    const bool good =
        head.size() == kHead && masked_crc32c(head.substr(0, 8)) == little_endian(std::string_view(head).substr(8));
    if (at == 0 && !good) check_framing(file, head);
    const std::uint64_t bytes = good ? little_endian(std::string_view(head).substr(0, 8)) : 0;
    if (!good || bytes > end - at - kHead || end - at - kHead - bytes < kTail) {
      damaged(good ? "is truncated" : "has a damaged length; what follows in this shard is lost");
      break;
    }
    data.resize(static_cast<std::size_t>(bytes + kTail));
    data.resize(file.read_at(std::as_writable_bytes(std::span(data)), at + kHead));
    const std::uint64_t data_at = at + kHead;
    at += kHead + bytes + kTail;
    if (data.size() < bytes + kTail) {
      damaged("is truncated");
      continue;
    }
    const std::string_view record = std::string_view(data).substr(0, static_cast<std::size_t>(bytes));
    if (masked_crc32c(record) != little_endian(std::string_view(data).substr(record.size()))) {
      damaged("has another checksum than its data");
      continue;
    }
    const Example example = parse_example(record, keys);
    if (example.picture.empty() || example.label.empty()) {
      damaged(fmt::format("has no {} (its keys: {})",
                          example.picture.empty() ? names(keys.image, kImageKeys) : names(keys.label, kLabelKeys),
                          join(example.keys)));
      continue;
    }
    if (example.picture.size() > kMaxImageFileBytes) {
      damaged("has a picture of more than 1 GiB");
      continue;
    }
    const auto [found, added] = labels.emplace(example.label, static_cast<std::int32_t>(labels.size()));
    if (added) index.labels.push_back(example.label);
    index.records.push_back({data_at + static_cast<std::uint64_t>(example.picture.data() - record.data()),
                             static_cast<std::uint32_t>(example.picture.size()), 0, found->second});
  }
  return index;
}

ShardFormat tfrecord_format(const TfrecordKeys& keys) {
  return {.name = fmt::format("tfrecord {} {}", keys.image, keys.label),
          .suffixes = {".tfrecord", ".tfrec", "-of-"},
          .read = [keys](const std::filesystem::path& path) { return read_tfrecord_shard(path, keys); }};
}

}  // namespace ddp
