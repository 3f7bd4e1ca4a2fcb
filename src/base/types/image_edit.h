// A geometric change of an image: shifted, mirrored, then with rectangles that are filled. What changes is decided by the
// caller (data/pipeline/augmentation.h); applied to bytes, by the host or by the kernel that reads the image.
//
//   const ImageEdit edit{.right = 2, .down = -1, .mirrored = 1};
//   const EditRules rules{.height = 32, .width = 32, .reflects = true};
//   std::uint8_t byte = edited_byte(plane, rules, edit, /*row=*/3, /*column=*/5, /*fill=*/128);   // of one channel
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types/host_device.h"

namespace ddp {

// A rectangle of the image; empty if top == bottom.
struct EditedArea {
  std::int32_t top = 0;
  std::int32_t bottom = 0;
  std::int32_t left = 0;
  std::int32_t right = 0;
};

inline constexpr std::size_t kEditedAreas = 2;

struct ImageEdit {
  std::int32_t right = 0;  // the image is shifted by so many pixels
  std::int32_t down = 0;
  std::int32_t mirrored = 0;  // not 0: horizontally, after the shift
  EditedArea filled[kEditedAreas] = {};
};

// What all images have in common.
struct EditRules {
  std::int32_t height = 0;
  std::int32_t width = 0;
  bool reflects = false;  // a shift uncovers a border that is reflected, without repeating the edge; otherwise it is 0
};

// The position in the image that is seen at `at` of a reflected one; |at| less than the length.
DDP_HOST_DEVICE inline std::int32_t reflected(std::int32_t at, std::int32_t length) {
  if (at < 0) return -at;
  return at < length ? at : 2 * (length - 1) - at;
}

// The byte at (row, column) of the edited image, from a channel of the stored one and that channel's fill.
DDP_HOST_DEVICE inline std::uint8_t edited_byte(const std::uint8_t* plane, const EditRules& rules,
                                                const ImageEdit& edit, std::int32_t row, std::int32_t column,
                                                std::uint8_t fill) {
  for (const EditedArea& area : edit.filled) {
    if (row >= area.top && row < area.bottom && column >= area.left && column < area.right) return fill;
  }
  std::int32_t y = row - edit.down;
  std::int32_t x = (edit.mirrored != 0 ? rules.width - 1 - column : column) - edit.right;
  if (rules.reflects) {
    y = reflected(y, rules.height);
    x = reflected(x, rules.width);
  } else if (y < 0 || y >= rules.height || x < 0 || x >= rules.width) {
    return 0;
  }
  return plane[static_cast<std::size_t>(y) * static_cast<std::size_t>(rules.width) + static_cast<std::size_t>(x)];
}

}  // namespace ddp
