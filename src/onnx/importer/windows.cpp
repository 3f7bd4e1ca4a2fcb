#include "onnx/importer/windows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace ddp {
namespace {

// Larger than any image; products of these cannot overflow.
constexpr std::int64_t kLargest = 1 << 20;

struct Ends {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

// TensorFlow's "same" padding: the number of windows is the size divided by the stride, rounded up.
Ends same_padding(std::int64_t extent, std::int64_t window, std::int64_t stride, bool lower) {
  const std::int64_t windows = (extent + stride - 1) / stride;
  const std::int64_t total = std::max<std::int64_t>(0, (windows - 1) * stride + window - extent);
  const std::int64_t less = total / 2;
  return lower ? Ends{total - less, less} : Ends{less, total - less};
}

// Rows beyond the padding that the last window covers if the number of windows is rounded up. A window must not start
// beyond the image.
std::int64_t overhang(std::int64_t extent, std::int64_t window, std::int64_t stride, const Ends& padding) {
  const std::int64_t padded = extent + padding.before + padding.after;
  if (padded < window) return 0;
  std::int64_t last = (padded - window + stride - 1) / stride * stride;
  if (last >= extent + padding.before) last -= stride;
  return std::max<std::int64_t>(0, last + window - padded);
}

}  // namespace

Pair2d pair_of(const OnnxNode& node, std::string_view attribute, std::int64_t otherwise, std::int64_t least) {
  const std::vector<std::int64_t> numbers = node.integers(attribute, {otherwise, otherwise});
  const bool good =
      numbers.size() == 2 && std::min(numbers[0], numbers[1]) >= least && std::max(numbers[0], numbers[1]) <= kLargest;
  check(good, ExitCode::usage, "its {} are not two numbers from {}, for height and width", attribute, least);
  return {numbers[0], numbers[1]};
}

OnnxWindow window_of(const OnnxNode& node, std::int64_t height, std::int64_t width, std::int64_t rows,
                     std::int64_t columns) {
  OnnxWindow found;
  Window2d& window = found.window;
  window.height = height;
  window.width = width;
  window.stride = pair_of(node, "strides", 1, 1);
  window.dilation = pair_of(node, "dilations", 1, 1);
  check(std::min(height, width) >= 1 && std::max(height, width) <= kLargest &&
            std::max(window.rows(), window.columns()) <= kLargest,
        ExitCode::usage, "a window of {}x{} with dilation {}x{} is invalid", height, width, window.dilation.vertical,
        window.dilation.horizontal);
  Ends vertical;
  Ends horizontal;
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    vertical = same_padding(rows, window.rows(), window.stride.vertical, automatic == "SAME_LOWER");
    horizontal = same_padding(columns, window.columns(), window.stride.horizontal, automatic == "SAME_LOWER");
  } else {
    check(automatic == "NOTSET" || automatic == "VALID" || automatic.empty(), ExitCode::usage,
          "its auto_pad is not one of NOTSET, VALID, SAME_UPPER and SAME_LOWER");
    const std::vector<std::int64_t> none = {0, 0, 0, 0};
    const std::vector<std::int64_t> pads = automatic == "VALID" ? none : node.integers("pads", none);
    check(pads.size() == 4 && std::all_of(pads.begin(), pads.end(), [](auto p) { return p >= 0 && p <= kLargest; }),
          ExitCode::usage, "its pads are not four non-negative numbers");
    vertical = {pads[0], pads[2]};
    horizontal = {pads[1], pads[3]};
    if (node.integer("ceil_mode", 0) != 0) {
      found.overhang.bottom = overhang(rows, window.rows(), window.stride.vertical, vertical);
      found.overhang.right = overhang(columns, window.columns(), window.stride.horizontal, horizontal);
    }
  }
  window.padding = {vertical.before, horizontal.before, vertical.after, horizontal.after};
  return found;
}

namespace {

// One dimension of a transposed convolution with `wanted` outputs.
struct Cut {
  Ends padding;
  std::int64_t extra = 0;
};

// What the windows cover beyond the wanted outputs is cut off, the odd row where `upper` says at the end, otherwise at the
// beginning. Outputs beyond the windows are added at the end.
Cut cut_to(std::int64_t wanted, std::int64_t covered, std::int64_t extra, bool upper) {
  const std::int64_t total = covered + extra - wanted;
  if (total < 0) return {{}, extra - total};
  const std::int64_t less = total / 2;
  return {upper ? Ends{less, total - less} : Ends{total - less, less}, extra};
}

}  // namespace

TransposedWindow transposed_window_of(const OnnxNode& node, std::int64_t height, std::int64_t width, std::int64_t rows,
                                      std::int64_t columns) {
  TransposedWindow found;
  found.output_padding = pair_of(node, "output_padding", 0, 0);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (!same && !node.has("output_shape")) {
    found.window = window_of(node, height, width, rows, columns).window;
    return found;
  }
  OnnxNode unpadded = node;
  unpadded.attributes.erase("auto_pad");
  unpadded.attributes.erase("pads");
  found.window = window_of(unpadded, height, width, rows, columns).window;
  Window2d& window = found.window;
  std::vector<std::int64_t> wanted = {rows * window.stride.vertical, columns * window.stride.horizontal};
  if (node.has("output_shape")) {
    wanted = node.integers("output_shape", {});
    // With or without samples and channels.
    check(wanted.size() == 2 || wanted.size() == 4, ExitCode::usage,
          "its output_shape is not two numbers, for height and width");
    wanted.erase(wanted.begin(), wanted.end() - 2);
    check(std::min(wanted[0], wanted[1]) >= 1 && std::max(wanted[0], wanted[1]) <= kLargest, ExitCode::usage,
          "its output_shape of {}x{} is invalid", wanted[0], wanted[1]);
  }
  const bool upper = automatic == "SAME_UPPER";
  const Cut vertical =
      cut_to(wanted[0], (rows - 1) * window.stride.vertical + window.rows(), found.output_padding.vertical, upper);
  const Cut horizontal = cut_to(wanted[1], (columns - 1) * window.stride.horizontal + window.columns(),
                                found.output_padding.horizontal, upper);
  window.padding = {vertical.padding.before, horizontal.padding.before, vertical.padding.after,
                    horizontal.padding.after};
  found.output_padding = {vertical.extra, horizontal.extra};
  return found;
}

}  // namespace ddp
