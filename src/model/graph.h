// A network as a static graph of layers, which correspond to PyTorch's modules.
//
//   Graph graph({3, 32, 32});
//   int x = graph.conv("conv1", graph.input(), {.channels = 64, .window = square(3, 1, 1), .bias = false});
//   x = graph.relu(graph.batch_norm("bn1", x));
//   int y = graph.conv("conv2", x, {.channels = 64, .window = square(3, 1, 1), .bias = false});
//   x = graph.relu(graph.add(graph.batch_norm("bn2", y), x));
//   graph.linear("fc", graph.flatten(graph.global_average_pool(x)), 10);
//   graph.parameters();   // conv1.weight [64,3,3,3], bn1.weight [64], bn1.bias ..., in PyTorch's order
//
// A layer is an index into layers(); it reads layers added before it, so the order of layers is a topological order.
// The last layer gives the logits. Shapes are inferred as layers are added; a layer that does not fit throws
// Error(usage) naming it.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/memory.h"
#include "backend/op.h"
#include "backend/window.h"
#include "base/types/shape.h"

namespace ddp {

struct InputLayer {};
struct ConvLayer {
  std::int64_t channels = 0;
  Window2d window = {};
  std::int64_t groups = 1;
  bool bias = true;
};
// PyTorch's ConvTranspose2d (backend/ops/conv_transpose.h).
struct ConvTransposeLayer {
  std::int64_t channels = 0;
  Window2d window = {};
  Pair2d output_padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
};
struct LinearLayer {
  std::int64_t outputs = 0;
  bool bias = true;
  std::int64_t parts = 1;  // in training, of the outputs, one for each rank
};
struct BatchNormLayer {
  float epsilon = 1e-5F;
  float momentum = 0.1F;      // fraction of the running statistics that a batch replaces: 1 - TensorFlow's decay
  bool scale = true;          // false: the weight is the constant 1
  bool fixed_weight = false;  // neither trained nor saved: PyTorch's affine=False
  bool fixed_bias = false;
  bool synchronized = false;  // statistics over all logical shards
  bool frozen = false;        // the running statistics are used in training too, and do not change
};
// Layer, group and instance normalisation (backend/ops/sample_norm.h).
struct SampleNormLayer {
  NormOver over = NormOver::channels;
  std::int64_t groups = 1;
  float epsilon = 1e-5F;
  bool fixed_weight = false;  // neither trained nor saved: PyTorch's elementwise_affine=False, affine=False, bias=False
  bool fixed_bias = false;
};
struct ActivationLayer {
  Activation activation = Activation::relu;
};
struct PreluLayer {
  bool shared = false;  // one weight for all channels
};
struct PoolLayer {
  PoolSpec::Kind kind = PoolSpec::Kind::average;
  Window2d window = square(2, 2);
  bool count_padding = true;
  // Not 0: averages over windows of PyTorch's AdaptiveAvgPool2d (backend/ops/pool.h).
  std::int64_t adaptive_height = 0;
  std::int64_t adaptive_width = 0;
};
// A border copied from the image (backend/ops/pad.h); zeros are part of a window.
struct PadLayer {
  Padding2d padding;
  PadMode mode = PadMode::reflect;
};
struct LrnLayer {
  std::int64_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;
};
struct DropoutLayer {
  float rate = 0.5F;
  DropoutUnit unit = DropoutUnit::element;
};
struct AddLayer {};
struct ProductLayer {};
struct ConcatLayer {};
// Channels first to first + count - 1, shuffled between groups (backend/ops/channel_select.h).
struct ChannelSelectLayer {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t groups = 1;
};
struct FlattenLayer {
  bool channels_last = false;  // the order is [H][W][C]; else PyTorch's, [C][H][W]
};
// y = scale * x + shift, per channel.
struct AffineLayer {
  bool shift = true;
};

using LayerKind = std::variant<InputLayer, ConvLayer, ConvTransposeLayer, LinearLayer, BatchNormLayer, SampleNormLayer,
                               ActivationLayer, PreluLayer, PoolLayer, PadLayer, LrnLayer, DropoutLayer, AddLayer,
                               ProductLayer, ConcatLayer, ChannelSelectLayer, FlattenLayer, AffineLayer,
                               // Specs whose batch and shape are open: LayerSpec.
                               GeluSpec, PointwiseSpec, SoftmaxSpec>;

struct Layer {
  std::string name;
  LayerKind kind;
  std::vector<int> inputs;  // indices of the layers whose outputs it reads
  Shape output;
};

// Initialisation of a parameter tensor.
struct Initial {
  enum class Kind {
    uniform_fan_in,    // uniform in +-scale/sqrt(fan_in); scale 1: the default of PyTorch's Conv2d and Linear
    constant,          // `scale`
    normal,            // N(0, scale^2)
    truncated_normal,  // the same truncated at two standard deviations, as in TensorFlow
    xavier_uniform,    // uniform in +-scale*sqrt(6/(fan_in+fan_out)) (Glorot and Bengio, 2010)
    kaiming_fan_in,    // N(0, scale^2 * 2/fan_in) (He et al., 2015)
    kaiming_fan_out,   // N(0, scale^2 * 2/fan_out)
    xavier_caffe,      // uniform in +-scale*sqrt(3/fan_in), Caffe's "xavier"
    dirac,             // of a convolution: output i < inputs passes input i on; the other outputs as uniform_fan_in
    deviation,         // uniform_fan_in, then scaled so that the tensor has the standard deviation `scale`
    whitening,         // of the first convolution: makes the patches of the training images uncorrelated
                       // (train/inputs/whitening.h); until these are known, uniform_fan_in
  };
  Kind kind = Kind::uniform_fan_in;
  float scale = 1;
};

// Parameters begin at multiples of this in the flat buffer, in floats: where libraries and vector loads want them. The
// elements between two parameters are zero and stay so: no gradient reaches them, no norm or file has them.
inline constexpr std::int64_t kParameterAlignment = kMemoryAlignment / sizeof(float);

// A parameter tensor and its offset in the flat buffer.
struct Parameter {
  std::string name;                 // e.g. "conv1.weight"
  std::vector<std::int64_t> shape;  // PyTorch's
  std::int64_t offset = 0;          // floats from the beginning of the flat buffer, a multiple of kParameterAlignment
  std::int64_t fan_in = 0;          // of its layer
  std::int64_t fan_out = 0;
  bool bias = false;
  int layer = 0;
  bool norm = false;   // belongs to a normalisation
  Initial initial;     // the initialisation of the model's source
  float lr_scale = 1;  // factors on the learning rate and on the weight decay, Caffe's lr_mult and decay_mult
  float decay_scale = 1;
  bool fixed = false;   // a constant of the network: neither trained nor saved
  bool frozen = false;  // not trained in this run, so that its gradient is not needed

  std::int64_t elements() const;
  // With the zeros up to the next parameter.
  std::int64_t flat_elements() const;
};

// A tensor of an AffineLayer, with its name in the source.
struct ChannelTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // has one element per channel
  bool fixed = false;
};

// A tensor that the network's source stores beside the parameters, such as a buffer of a PyTorch module. It is kept
// only for files of weights; the graph contains its values.
struct Constant {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Running statistics of a batch normalisation, stored beside the parameters.
struct Statistic {
  std::string name;  // e.g. "bn1.running_mean"
  std::int64_t channels = 0;
  std::int64_t offset = 0;  // floats from the beginning of the flat statistics
  float initial = 0;
  int layer = 0;
};

class Graph {
 public:
  explicit Graph(const Shape& input);

  int input() const { return 0; }
  int conv(const std::string& name, int from, const ConvLayer& layer);
  int conv_transpose(const std::string& name, int from, const ConvTransposeLayer& layer);
  int linear(const std::string& name, int from, std::int64_t outputs, bool bias = true);
  // A linear layer of the channels of each position, PyTorch's Linear after a permutation to [N, H, W, C]: a 1x1
  // convolution whose weight has the shape [outputs, inputs].
  int linear_per_position(const std::string& name, int from, std::int64_t outputs, bool bias = true);
  int sample_norm(const std::string& name, int from, const SampleNormLayer& layer);
  int batch_norm(const std::string& name, int from, const BatchNormLayer& layer = {});
  int activation(int from, Activation activation);
  int relu(int from) { return activation(from, Activation::relu); }
  // A layer with the settings of a spec, called as its kind.
  template <LayerSpec Spec>
  int apply(int from, const Spec& spec) {
    return add_layer(std::string(Spec::kKind), spec, {from}, shape(from));
  }
  int gelu(int from, GeluForm form = GeluForm::exact) { return apply(from, GeluSpec{.form = form}); }
  // `alpha`: of leaky_relu and elu.
  int pointwise(int from, PointwiseFunction function, float alpha = 0);
  int prelu(const std::string& name, int from, bool shared = false);
  int pool(int from, const PoolLayer& layer);
  int average_pool(int from, std::int64_t window);
  int max_pool(int from, std::int64_t window);
  int global_average_pool(int from);
  // Any size, also larger than the image.
  int adaptive_average_pool(int from, std::int64_t height, std::int64_t width);
  int pad(int from, const PadLayer& layer);
  int lrn(int from, const LrnLayer& layer);
  int dropout(int from, float rate, DropoutUnit unit = DropoutUnit::element);
  int add(int a, int b);
  // b has the shape of a, or one value per channel.
  int product(int a, int b);
  // The channels of a, then those of b; equal concatenations become one layer.
  int concat(int a, int b);
  int concat(const std::vector<int>& parts);
  int channel_select(int from, const ChannelSelectLayer& layer);
  // ShuffleNet's shuffle of all channels.
  int channel_shuffle(int from, std::int64_t groups);
  int flatten(int from, bool channels_last = false);
  // `shift` may be null.
  int affine(const std::string& name, int from, const ChannelTensor& scale, const ChannelTensor* shift);
  // The last layer with weights that are not a normalisation's, or -1.
  int classifier() const;
  // Lets a batch normalisation keep its running statistics in training, and use them.
  void freeze_statistics(int layer);
  // Makes all batch normalisations synchronized. Throws Error(usage) if there is none.
  void synchronize_batch_norm();
  // Divides the outputs of a linear layer into so many equal parts in training (backend/ops/linear.h).
  void split_linear(int layer, std::int64_t parts);
  // Gives the last layer with weights, from which the logits come, so many outputs. Throws Error(usage) if it is neither a
  // linear layer nor an ungrouped convolution, or if a later layer mixes its outputs.
  void set_classes(std::int64_t classes);
  // The same network, with the same parameters, for images of another size: what pools over the whole image does so there
  // as well. Throws Error(usage) if a linear layer or the logits depend on the size.
  Graph at_size(std::int64_t height, std::int64_t width) const;
  void add_constant(Constant constant) { constants_.push_back(std::move(constant)); }
  // Those with these names.
  void remove_constants(const std::set<std::string>& names) {
    std::erase_if(constants_, [&](const Constant& each) { return names.contains(each.name); });
  }
  // Names must stay unique.
  void rename_parameter(std::size_t parameter, const std::string& name) { parameters_.at(parameter).name = name; }
  void rename_statistic(std::size_t statistic, const std::string& name) { statistics_.at(statistic).name = name; }

  const std::vector<Layer>& layers() const { return layers_; }
  const Shape& shape(int layer) const { return layers_.at(static_cast<std::size_t>(layer)).output; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // A layer's parameter by the last part of its name, "weight" or "bias", to set its initialisation and factors.
  Parameter& parameter(const std::string& name);
  // This run does not train that element of parameters().
  void freeze(std::size_t parameter) { parameters_.at(parameter).frozen = true; }
  // Sets the initialisation of all weights of convolutions and linear layers, or of all their biases.
  void set_initial_weights(const Initial& initial);
  void set_initial_biases(const Initial& initial);
  const std::vector<Statistic>& statistics() const { return statistics_; }
  const std::vector<Constant>& constants() const { return constants_; }
  // The total number of elements of all parameters, and of all running statistics.
  std::int64_t parameter_count() const { return parameter_count_; }
  std::int64_t statistic_count() const { return statistic_count_; }
  // The number of elements of a flat buffer of parameters, with what lies between them.
  std::int64_t flat_elements() const { return flat_elements_; }
  // The number of elements of the parameters that are not fixed: the usual parameter count.
  std::int64_t trained_count() const;
  // The number of logits.
  std::int64_t classes() const { return layers_.back().output.channels; }

 private:
  int add_layer(const std::string& name, const LayerKind& kind, std::vector<int> inputs, const Shape& output);
  void add_parameter(Parameter parameter);
  // A convolution, transposed or not, with a weight of channels[0] x channels[1] windows.
  template <class ConvKind>
  int add_conv(const std::string& name, int from, const ConvKind& layer, const Shape& out,
               const std::array<std::int64_t, 2>& channels, std::int64_t fan_in, std::int64_t fan_out);
  // The weight or bias of a normalisation.
  void add_norm_parameter(int layer, bool bias, bool fixed);

  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  std::vector<Statistic> statistics_;
  std::vector<Constant> constants_;
  std::int64_t parameter_count_ = 0;
  std::int64_t flat_elements_ = 0;
  std::int64_t statistic_count_ = 0;
};

}  // namespace ddp
