// MANIFEST.json: the files of a checkpoint with their sizes and hashes. It is written last.
//
//   {
//     "format": "ddp_train checkpoint",
//     "format_version": 1,
//     "files": {
//       "model.safetensors": {"size": 1724, "xxh3_128": "0c6f..."},
//       ...
//
// A manifest is valid only if it is byte for byte what to_json() writes, so damage to the manifest itself is detected.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/digest.h"

namespace ddp {

// Incremented whenever older readers would misread a checkpoint.
inline constexpr int kCheckpointFormatVersion = 1;

struct Manifest {
  int format_version = kCheckpointFormatVersion;
  std::map<std::string, FileDigest> files;
};

std::string to_json(const Manifest& manifest);

// Throws Error(checkpoint) for a text that is not a manifest, is damaged, or has another format version; `path` is used
// in the message.
Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

}  // namespace ddp
