#include <gtest/gtest.h>

#include <string>

#include "onnx/import.h"
#include "unit/onnx/model_maker.h"
#include "unit/onnx/only_layer.h"

namespace ddp {
namespace {

// An input of 6 gives 13 rows with a window of 3 and a stride of 2, of which what is too much is cut off.
TEST(ImportOnnx, TransposedConvolutionsFollowTheSizeOfTheOutput) {
  const auto layer_of = [](ModelMaker::Attributes attributes) {
    ModelMaker m;
    attributes["strides"] = ModelMaker::Integers{2, 2};
    const std::string up = m.node("ConvTranspose", {"input", m.random("up.weight", {2, 3, 3, 3})}, attributes);
    m.output(m.node("Flatten", {m.node("GlobalAveragePool", {up})}));
    return only_layer<ConvTransposeLayer>(m.imported().graph);
  };
  ConvTransposeLayer found = layer_of({{"output_shape", ModelMaker::Integers{12, 11}}});
  EXPECT_EQ(found.window.padding, (Padding2d{.top = 1, .left = 1, .bottom = 0, .right = 1}));
  found = layer_of({{"output_shape", ModelMaker::Integers{1, 3, 12, 10}}, {"auto_pad", std::string("SAME_UPPER")}});
  EXPECT_EQ(found.window.padding, (Padding2d{.top = 0, .left = 1, .bottom = 1, .right = 2}));
  found = layer_of({{"auto_pad", std::string("SAME_LOWER")}});
  EXPECT_EQ(found.window.padding, (Padding2d{.top = 1, .left = 1, .bottom = 0, .right = 0}));
  EXPECT_EQ(found.output_padding, Pair2d(0));
  found = layer_of({{"output_shape", ModelMaker::Integers{14, 13}}});
  EXPECT_FALSE(found.window.padding.any());
  EXPECT_EQ(found.output_padding, Pair2d(1, 0));
  found = layer_of({{"output_shape", ModelMaker::Integers{13, 13}}, {"output_padding", ModelMaker::Integers{1, 0}}});
  EXPECT_EQ(found.window.padding, (Padding2d{.top = 1, .left = 0, .bottom = 0, .right = 0}));
  EXPECT_EQ(found.output_padding, Pair2d(1, 0));
}

}  // namespace
}  // namespace ddp
