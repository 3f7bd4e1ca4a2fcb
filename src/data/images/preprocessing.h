// What is done to a picture before a network sees it: one value, which the reader of image folders, the evaluation, the
// metadata of exported networks and the header of a run take.
//
//   const Preprocessing preprocessing{.shape = {3, 224, 224}};
//   const Region shown = preprocessing.region({500, 375});   // the central 328.1 x 328.1 pixels
//   std::string text = preprocessing.text();                 // "shorter side to 256, central 224, bilinear; ..."
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types/pictures.h"
#include "base/types/shape.h"
#include "data/formats/region.h"

namespace ddp {

// Per channel, with pixels scaled to [0, 1]: the network reads (byte / 255 - mean) / deviation.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;  // 1 if all pixels of the channel are equal
};

// Where a resized picture lies on what the network reads.
struct PicturePlace {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
};

struct Preprocessing {
  Shape shape = {3, 224, 224};  // of what the network reads; one channel: grey
  PictureResize resize = PictureResize::crop;
  Interpolation filter = Interpolation::bilinear;
  // Share of the largest central rectangle with the network's aspect ratio, or with `squash` of each side, which is then
  // resized. 224/256 is PyTorch's Resize(256) and CenterCrop(224) in one step.
  double crop = 224.0 / 256.0;
  // A picture of exactly the network's size is read as it is.
  bool keeps_right_size = true;
  // Evaluation decodes whole pictures and resizes them with Pillow's arithmetic. Otherwise it reads them as training does: a
  // decoder that shrinks large pictures, and a faster resampler.
  bool exact = true;
  // Turned as the EXIF orientation says, as by Pillow's exif_transpose().
  bool upright = true;
  Normalization normalization = {};

  // What is shown of a picture of this size, without augmentation.
  Region region(const ImageSize& picture) const;
  // Where that goes: everywhere, or with `pad` between borders, as by Pillow's ImageOps.pad().
  PicturePlace placement(const ImageSize& picture) const;
  bool is_right_size(const ImageSize& picture) const {
    return keeps_right_size && picture == ImageSize{shape.width, shape.height};
  }
  // For the header of a run. `varied`: in training another region is drawn.
  std::string text(bool varied = false) const;
  // The recipe for other programs as JSON, besides the normalisation: docs/preprocessing.md.
  std::string recipe() const;
};

}  // namespace ddp
