// A data set: labelled images of one shape, as bytes, read by index.
//
//   DataSets data = open_dataset("fashion-mnist", "data", /*train_limit=*/0, /*test_limit=*/0, /*threads=*/2);
//   std::vector<std::uint8_t> pixels(data.train->shape().size());
//   data.train->read(17, pixels);
//   const int label = data.train->label(17);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/types/shape.h"
#include "data/formats/region.h"

namespace ddp {

class ImageDecoder;  // data/images/image_decoder.h

// The part of a data set.
enum class Split { train, test };

// read() and label() are thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  // The display name: "fashion-mnist".
  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  Shape shape() const { return shape_; }
  // Labels are 0 .. classes()-1.
  int classes() const { return classes_; }
  // The class names as escape_name() has them (base/text/utf8.h), in the order of the labels; empty if there are none.
  const std::vector<std::string>& class_names() const { return class_names_; }
  // `names`: one per class.
  void name_classes(std::vector<std::string> names) { class_names_ = std::move(names); }

  // Writes image `index`, 0 <= index < size(), as used in evaluation, to `pixels` [shape().size()]. Returns the index
  // of the sample read: `index`, or a substitute if that cannot be read; the label is that of the returned sample.
  virtual std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const = 0;
  // The same for a region of the stored image, resized to shape().
  virtual std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                                   std::span<std::uint8_t> pixels) const;
  // The same as training reads it, without augmentation: files are decoded faster and less exactly.
  virtual std::int64_t read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const {
    return read(index, pixels);
  }
  // The same with augmentation: a function of (index, key) alone.
  virtual std::int64_t read_training(std::int64_t index, [[maybe_unused]] std::uint64_t key,
                                     std::span<std::uint8_t> pixels) const {
    return read_plain(index, pixels);
  }
  // Whether read_training() and read_plain() return the same as read() at the cost of a copy, so that the images can be
  // kept in device memory.
  virtual bool fixed() const { return true; }
  virtual int label(std::int64_t index) const = 0;
  // Loads the file of a sample that has one, or a record like one; false for the others. Throws BadImage.
  virtual bool load(std::int64_t /*index*/, ImageDecoder& /*decoder*/) const { return false; }
  // The file of a sample that has one of its own, as escape_name() has it; "" otherwise.
  virtual std::string file(std::int64_t /*index*/) const { return ""; }
  // The number of images whose mean and deviation stand for all; fewer where reading all takes long.
  virtual std::int64_t measured_samples() const { return size_; }

 protected:
  Dataset(std::string name, std::int64_t size, Shape shape, int classes)
      : name_(std::move(name)), size_(size), shape_(shape), classes_(classes) {}

 private:
  std::string name_;
  std::int64_t size_;
  Shape shape_;
  int classes_;
  std::vector<std::string> class_names_;
};

// The parts of a data set (data/sources/catalog.h).
struct DataSets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  // The folder or the shards that evaluate: "valid (test is not read)".
  std::string evaluation = {};
  // Files of a folder that are passed over: "9 files (7 .txt, 2 Thumbs.db)".
  std::string passed_over = {};
  // `train` has the images of `test`, because there are none for training: an evaluation.
  bool without_train = false;
};

}  // namespace ddp
