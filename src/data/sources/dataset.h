// A data set: labelled images of one shape, as bytes, read by index.
//
//   DataSets data = open_dataset("fashion-mnist", "data", /*train_limit=*/0, /*test_limit=*/0, /*threads=*/2);
//   std::vector<std::uint8_t> pixels(data.train->shape().size());
//   data.train->read(17, pixels);
//   const int label = data.train->label(17);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "data/images/region.h"

namespace ddp {

// Which half of a data set.
enum class Split { train, test };

// read() and label() may be called by many threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  // As people write it: "fashion-mnist".
  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  Shape shape() const { return shape_; }
  // Labels are 0 .. classes()-1.
  int classes() const { return classes_; }
  // What people call the classes, in the order of the labels; empty where labels speak for themselves.
  const std::vector<std::string>& class_names() const { return class_names_; }
  // `names`: one for each class.
  void name_classes(std::vector<std::string> names) { class_names_ = std::move(names); }

  // Writes image `index`, 0 <= index < size(), as it is evaluated, to `pixels` [shape().size()]. Returns whose image
  // it is: `index`, or where that cannot be read, the sample that stands in for it, with its label.
  virtual std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const = 0;
  // The same for a part of the image as it is stored, resized to shape().
  virtual std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                                   std::span<std::uint8_t> pixels) const;
  // The same as training sees it: a function of (index, key) alone.
  virtual std::int64_t read_training(std::int64_t index, [[maybe_unused]] std::uint64_t key,
                                     std::span<std::uint8_t> pixels) const {
    return read(index, pixels);
  }
  // Whether read_training() gives what read() gives, at the cost of a copy: the images may then as well be kept where
  // they are computed on.
  virtual bool fixed() const { return true; }
  virtual int label(std::int64_t index) const = 0;

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

}  // namespace ddp
