// How pictures of any size become those that a network reads (data/images/preprocessing.h).
//
//   const Interpolation filter = Interpolation::bicubic;
#pragma once

namespace ddp {

// Pillow's filters, widened on downscaling to avoid aliasing.
enum class Interpolation { bilinear, bicubic };

// crop: the largest central rectangle with the network's aspect ratio; squash: all of the picture, distorted; pad: all of it,
// undistorted, between black borders.
enum class PictureResize { crop, squash, pad };

}  // namespace ddp
