// Operators by oneDNN, in nhwc, or plain for linear layers. The format inside oneDNN is chosen for each direction of a convolution:
//   nhwc      its kernels for channels-last
//   any       the blocked format it prefers, with reorders
//   winograd  Winograd's algorithm in its blocked format
//   linear    a 1x1 convolution as a linear layer with a row for each position: matrix products
// as "forward=onednn.nhwc data=onednn.any weights=onednn.any", on bf16 activations "forward=onednn-bf16.nhwc ...".
//
//   std::unique_ptr<Op> op = make_onednn_conv(spec, {.forward = "any"});
#pragma once

#include <memory>
#include <string>

#include "backend/op.h"

namespace ddp {

struct OneDnnConvFormats {
  std::string forward = "nhwc";
  std::string data = "nhwc";
  std::string weights = "nhwc";
};
std::string to_text(const OneDnnConvFormats& formats, Element element = Element::fp32);
bool is_onednn_bf16_text(const std::string& kernels);
OneDnnConvFormats onednn_formats_from_text(const std::string& kernels);
// Null if oneDNN has no such kernel for the shape (for example Winograd or linear for 5x5), or for bf16 on this processor.
std::unique_ptr<Op> make_onednn_conv(const ConvSpec& spec, const OneDnnConvFormats& formats,
                                     Element element = Element::fp32);

std::unique_ptr<Op> make_onednn_conv_transpose(const ConvTransposeSpec& spec);

// x and y plain.
std::unique_ptr<Op> make_onednn_linear(const LinearSpec& spec);

}  // namespace ddp
