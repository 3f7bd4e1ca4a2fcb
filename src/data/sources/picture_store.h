// Encoded pictures with their labels, wherever they lie: files of a folder, or records of shards.
//
//   ImageDecoder decoder;
//   const ShardPictures pictures({{"train-0000.tar", 4096, 0}}, {{1536, 900, 0, 3}});   // of a RecordIndex
//   pictures.load(0, decoder, /*upright=*/true);   // throws BadImage
//   pictures.name(0);                              // "train-0000.tar: offset 1536"
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/images/image_decoder.h"
#include "data/index/folder_listing.h"
#include "data/shards/record_index.h"

namespace ddp {

// Thread-safe.
class PictureStore {
 public:
  virtual ~PictureStore() = default;
  PictureStore(const PictureStore&) = delete;
  PictureStore& operator=(const PictureStore&) = delete;

  virtual std::int64_t size() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;
  // As messages name it, in any bytes.
  virtual std::string name(std::int64_t index) const = 0;
  // The folder or the first shard.
  virtual std::string place() const = 0;
  virtual void load(std::int64_t index, ImageDecoder& decoder, bool upright) const = 0;

 protected:
  PictureStore() = default;
};

class FolderPictures : public PictureStore {
 public:
  FolderPictures(std::filesystem::path folder, const std::vector<ListedFile>& files);

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  std::int32_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }
  std::string name(std::int64_t index) const override { return path(index).string(); }
  std::string place() const override { return folder_.string(); }
  void load(std::int64_t index, ImageDecoder& decoder, bool upright) const override {
    decoder.load(path(index), upright);
  }

  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<std::string>& files() const { return files_; }  // relative to the folder

 private:
  std::filesystem::path path(std::int64_t index) const { return folder_ / files_[static_cast<std::size_t>(index)]; }

  std::filesystem::path folder_;
  std::vector<std::string> files_;
  std::vector<std::int32_t> labels_;
};

// 20 bytes of memory for each picture.
class ShardPictures : public PictureStore {
 public:
  // The label of each record is that of the class.
  ShardPictures(std::vector<Shard> shards, std::vector<Record> records);
  ~ShardPictures() override;
  ShardPictures(const ShardPictures&) = delete;
  ShardPictures& operator=(const ShardPictures&) = delete;

  std::int64_t size() const override { return static_cast<std::int64_t>(records_.size()); }
  std::int32_t label(std::int64_t index) const override { return records_[static_cast<std::size_t>(index)].label; }
  std::string name(std::int64_t index) const override;
  std::string place() const override { return shards_.front().path.string(); }
  // Throws BadImage, too, if the shard is not as it was when it was indexed.
  void load(std::int64_t index, ImageDecoder& decoder, bool upright) const override;

 private:
  // A descriptor of the shard, and whether the caller closes it.
  std::pair<int, bool> open(std::size_t shard) const;

  std::vector<Shard> shards_;
  std::vector<Record> records_;
  // The descriptors of the shards that were read first; -1: not open. Many would use up what a process may have.
  std::unique_ptr<std::atomic<int>[]> descriptors_;
  mutable std::atomic<int> open_ = 0;
};

}  // namespace ddp
