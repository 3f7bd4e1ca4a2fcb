// ConvNeXt-Tiny (Liu et al., "A ConvNet for the 2020s", 2022), as in torchvision.models.
#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

struct StageSize {
  std::int64_t channels;
  int blocks;
};

constexpr std::array<StageSize, 4> kStages = {{{96, 3}, {192, 3}, {384, 9}, {768, 3}}};
// Highest rate of stochastic depth; it rises from block to block.
constexpr float kConvNextDepthRate = 0.1F;
constexpr float kFirstScale = 1e-6F;

class ConvNext {
 public:
  explicit ConvNext(const Shape& image) : graph_(image) {}

  Graph build(std::int64_t classes) {
    int x = graph_.conv("features.0.0", graph_.input(), {.channels = kStages[0].channels, .window = square(4, 4)});
    x = norm("features.0.1", x);
    int blocks = 0;
    for (const StageSize& stage : kStages) blocks += stage.blocks;
    int index = 1;
    int block = 0;
    for (const StageSize& stage : kStages) {
      if (index > 1) {
        x = norm(fmt::format("features.{}.0", index), x);
        x = graph_.conv(fmt::format("features.{}.1", index++), x, {.channels = stage.channels, .window = square(2, 2)});
      }
      for (int i = 0; i < stage.blocks; ++i) {
        const float rate = kConvNextDepthRate * static_cast<float>(block++) / static_cast<float>(blocks - 1);
        x = residual(fmt::format("features.{}.{}.", index, i), x, rate);
      }
      ++index;
    }
    x = norm("classifier.0", graph_.global_average_pool(x));
    graph_.linear("classifier.2", graph_.flatten(x), classes);
    graph_.set_initial_weights({Initial::Kind::normal, 0.02F});
    graph_.set_initial_biases({Initial::Kind::constant, 0});
    return std::move(graph_);
  }

 private:
  int norm(const std::string& name, int from) {
    return graph_.sample_norm(name, from, {.over = NormOver::channels, .epsilon = 1e-6F});
  }

  int residual(const std::string& name, int from, float rate) {
    const std::int64_t channels = graph_.shape(from).channels;
    int x = graph_.conv(name + "block.0", from, {.channels = channels, .window = square(7, 1, 3), .groups = channels});
    x = norm(name + "block.2", x);
    x = graph_.gelu(graph_.linear_per_position(name + "block.3", x, 4 * channels));
    x = graph_.linear_per_position(name + "block.5", x, channels);
    x = graph_.affine(name + "layer_scale", x, {name + "layer_scale", {channels, 1, 1}, false}, nullptr);
    graph_.parameter(name + "layer_scale").initial = {Initial::Kind::constant, kFirstScale};
    if (rate > 0) x = graph_.dropout(x, rate, DropoutUnit::sample);
    return graph_.add(x, from);
  }

  Graph graph_;
};

}  // namespace

Graph convnext_tiny(const Shape& image, std::int64_t classes) { return ConvNext(image).build(classes); }

}  // namespace ddp::zoo
