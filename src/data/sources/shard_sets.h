// Data sets in shards: WebDataset and TFRecord.
//
//   const ShardSettings settings{.format = "webdataset", .train = "train-{0000..0127}.tar", .test = "val-{0..7}.tar"};
//   const ShardIndexes indexes = index_shards(settings, {.folder = "indexes", .threads = 2});
//   const DataSets data = open_shards(settings, indexes, {}, 0, 0, std::make_shared<BadSamples>(0));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/shards/record_index.h"
#include "data/sources/dataset.h"
#include "data/sources/image_folder.h"

namespace ddp {

struct ShardSettings {
  std::string format;  // a name of shard_formats()
  std::string train;   // shard_names()
  std::string test;
  std::string image_key = {};
  std::string label_key = {};
  // For an evaluation: the classes of the checkpoint, in any bytes; then the shards that train are not read.
  std::vector<std::string> classes = {};
};

std::vector<std::string> shard_formats();
bool is_shard_format(const std::string& name);

// What index_text() makes of both indexes, so that one rank reads the shards and tells the others.
struct ShardIndexes {
  std::string train;  // empty for an evaluation
  std::string test;
};

// Throws Error(usage) without shards that evaluate, and Error(data) like open_index().
ShardIndexes index_shards(const ShardSettings& settings, const IndexSettings& index);

// With the first images only, of all classes in turn, if the limits are not 0. Throws Error(data) if there is no sample, if a label that evaluates is
// not among those that train, and for damaged samples beyond what `bad` allows.
DataSets open_shards(const ShardSettings& settings, const ShardIndexes& indexes, const ImageFolderConfig& config,
                     std::int64_t train_limit, std::int64_t test_limit, const std::shared_ptr<BadSamples>& bad);

}  // namespace ddp
