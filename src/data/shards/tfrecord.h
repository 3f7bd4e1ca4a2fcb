// TFRecord files of tf.train.Example with an encoded picture and a label.
//
//   const RecordIndex index = read_tfrecord_shard("train-00000-of-00128", {});
//
// Format: each record is its length, the masked CRC-32C of that, the data, and their masked CRC-32C
// (tensorflow.org/tutorials/load_data/tfrecord); tensorflow/core/example/feature.proto.
#pragma once

#include <filesystem>
#include <string>

#include "data/shards/record_index.h"

namespace ddp {

struct TfrecordKeys {
  std::string image = {};  // empty: image/encoded, image or image_raw
  std::string label = {};  // empty: image/class/label, label or class
};

ShardFormat tfrecord_format(const TfrecordKeys& keys = {});

// All data are read once, and their CRCs checked. Records that are damaged or lack a key are in `damaged`; behind a damaged
// length nothing of the shard can be found. Throws Error(data) for a file that is no TFRecord, or a compressed one.
RecordIndex read_tfrecord_shard(const std::filesystem::path& path, const TfrecordKeys& keys);

}  // namespace ddp
