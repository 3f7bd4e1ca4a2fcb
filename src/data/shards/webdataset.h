// WebDataset: tar files in which the members with one name before the first dot are a sample, "n01/0017.jpg" and "n01/0017.cls".
//
//   const RecordIndex index = read_webdataset_shard("train-0000.tar", {});
//
// Format: POSIX.1-2001 ustar with PAX headers, and GNU tar's long names and sizes; github.com/webdataset/webdataset.
#pragma once

#include <filesystem>
#include <string>

#include "data/shards/record_index.h"

namespace ddp {

struct WebdatasetFields {
  std::string image = {};  // the field with the picture; empty: the one that is named like a picture, jpg first
  std::string label = {};  // empty: cls, or label, class or cls of json, or txt
};

ShardFormat webdataset_format(const WebdatasetFields& fields = {});

// Samples without a picture or without a label, and what cannot be read, are in `damaged`; behind a damaged header the next good one
// is looked for. Throws Error(data) for a file that is no tar, or a compressed one.
RecordIndex read_webdataset_shard(const std::filesystem::path& path, const WebdatasetFields& fields);

}  // namespace ddp
