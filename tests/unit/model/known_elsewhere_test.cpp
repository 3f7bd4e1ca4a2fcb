#include "model/known_elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/zoo.h"
#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::string& name) {
  return error_text(ExitCode::usage, [&] { check_model_name(name); });
}

// As torchvision, timm and Keras call them.
TEST(KnownElsewhere, NetworksOfOtherLibrariesComeByOnnx) {
  for (const std::string name : {"resnet101",
                                 "resnet152",
                                 "resnext50_32x4d",
                                 "wide_resnet101_2",
                                 "densenet169",
                                 "efficientnet_b4",
                                 "efficientnet_v2_s",
                                 "googlenet",
                                 "inception_v3",
                                 "mnasnet1_0",
                                 "regnet_y_400mf",
                                 "regnetx_002",
                                 "shufflenet_v2_x0_5",
                                 "squeezenet1_0",
                                 "vgg13",
                                 "vgg19_bn",
                                 "convnext_base",
                                 "tf_efficientnetv2_s.in21k",
                                 "timm/resnet50d.ra2_in1k",
                                 "seresnet50",
                                 "res2net50_26w_4s",
                                 "mixnet_s",
                                 "ghostnet_100",
                                 "hrnet_w18",
                                 "dla34",
                                 "dpn68",
                                 "repvgg_a0",
                                 "xception41",
                                 "EfficientNetB3",
                                 "EfficientNetV2B0",
                                 "ResNet101V2",
                                 "ResNet50V2",
                                 "NASNetMobile",
                                 "InceptionResNetV2",
                                 "Xception",
                                 "DenseNet201",
                                 "MobileNet",
                                 "mobilenetv4_conv_small",
                                 "legacy_senet154",
                                 "nfnet_f0",
                                 "dm_nfnet_f0",
                                 "poolformer_s12",
                                 "cs3darknet_m"}) {
    EXPECT_THAT(refusal(name), AllOf(HasSubstr("--model " + name + " is known from torchvision, timm or Keras"),
                                     HasSubstr("--model FILE.onnx"), HasSubstr("docs/onnx.md")));
  }
}

TEST(KnownElsewhere, NetworksWithAttentionAreSaidNotToComeByOnnx) {
  for (const std::string name :
       {"vit_b_16", "vit_base_patch16_224", "ViT_b16", "swin_t", "swin_v2_b", "swinv2_tiny_window8_256", "maxvit_t",
        "deit_tiny_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224", "coatnet_0_rw_224", "mobilevit_s",
        "pit_s_224", "mvitv2_tiny", "beitv2_base_patch16_224", "coatnext_nano_rw_224", "xcit_nano_12_p16_224",
        "cait_s24_224"}) {
    EXPECT_THAT(refusal(name), AllOf(HasSubstr("is known from torchvision, timm or Keras"),
                                     HasSubstr("attention is not supported"), Not(HasSubstr("export it"))));
  }
}

TEST(KnownElsewhere, OtherSpellingsOfBuiltInModelsAreSuggested) {
  const auto suggests = [](const std::string& name, const std::string& model) {
    EXPECT_THAT(refusal(name), HasSubstr("--model " + name + " is unknown, did you mean " + model + "?"));
  };
  suggests("ResNet50", "resnet50");
  suggests("mobilenet_v2", "mobilenet-v2");
  suggests("MobileNetV2", "mobilenet-v2");
  suggests("mobilenetv2_100", "mobilenet-v2");
  suggests("MobileNetV3Large", "mobilenet-v3-large");
  suggests("EfficientNetB0", "efficientnet-b0");
  suggests("shufflenet_v2_x1_0", "shufflenet-v2");
  suggests("timm/resnet50.a1_in1k", "resnet50");
  suggests("wide_resnet50_2", "wide-resnet50-2");
  suggests("lenett", "lenet");
}

TEST(KnownElsewhere, OtherWordsAreUnknown) {
  for (const std::string name : {"mynet", "batch", "nested", "vanilla", "pittsburgh", "everything", "transformer"}) {
    EXPECT_THAT(refusal(name), HasSubstr("--model " + name + " is unknown"));
    EXPECT_FALSE(known_elsewhere(name).has_value()) << name;
  }
  for (const std::string& name : model_names()) check_model_name(name);
}

}  // namespace
}  // namespace ddp
