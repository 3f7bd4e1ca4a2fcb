// Where each picture of a set of shards is, so that samples are read by position, in any order.
//
//   const RecordIndex index = open_index(webdataset_format(), shard_names("train-{0000..0127}.tar", {".tar"}),
//                                        {.folder = "/home/me/.cache/ddp_train/indexes", .threads = 2});
//   index.records[17];                 // {offset 53248, bytes 9120, shard 0, label 3}
//   index.labels[3];                   // "cat"
//   const std::string text = index_text(index);   // for other ranks: parse_index()
//
// An index is made once, reading all shards on several threads, and kept in a file. It is used again if each shard has the
// size and the time of modification of then; only shards that differ are read again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

struct Record {
  std::uint64_t offset = 0;  // of the picture's first byte in its shard
  std::uint32_t bytes = 0;
  std::int32_t shard = 0;
  std::int32_t label = 0;  // in RecordIndex::labels

  friend bool operator==(const Record&, const Record&) = default;
};

struct Shard {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::int64_t time = 0;  // of modification, in the clock's ticks

  friend bool operator==(const Shard&, const Shard&) = default;
};

// What is not a sample: "train-0003.tar: offset 51200" and "has a picture without a label".
struct DamagedRecord {
  std::int32_t shard = 0;
  std::uint64_t offset = 0;
  std::string reason;

  friend bool operator==(const DamagedRecord&, const DamagedRecord&) = default;
};

struct RecordIndex {
  std::vector<Shard> shards;
  std::vector<Record> records;      // in the order of the shards, then of the offsets
  std::vector<std::string> labels;  // as the shards have them, in the order in which they occur
  std::vector<DamagedRecord> damaged;

  friend bool operator==(const RecordIndex&, const RecordIndex&) = default;
};

// The contents of one shard; `shard` of its records is 0.
using ReadShard = std::function<RecordIndex(const std::filesystem::path&)>;

struct ShardFormat {
  std::string name;                   // of the format and its settings: indexes of others are not used
  std::vector<std::string> suffixes;  // of shards in a folder
  ReadShard read;
};

struct IndexSettings {
  std::filesystem::path folder = {};  // of kept indexes; empty: none is kept
  int threads = 1;
};

// Throws Error(data) for a shard that cannot be read or is of another format. An index that cannot be kept is a warning.
RecordIndex open_index(const ShardFormat& format, const std::vector<std::filesystem::path>& shards,
                       const IndexSettings& settings);

std::string index_text(const RecordIndex& index);
// Nothing if the text is damaged, or is no index.
std::optional<RecordIndex> parse_index(std::string_view text);

}  // namespace ddp
