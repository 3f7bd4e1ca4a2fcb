// The inside of import.h: goes through the nodes of an ONNX model and builds the graph.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/import.h"
#include "onnx/model.h"
#include "onnx/names.h"
#include "onnx/windows.h"

namespace ddp {

// A convolution, matrix product or scaling whose bias may still come, in an Add of its own.
struct PendingLayer {
  enum class Kind { conv, linear, affine };
  Kind kind = Kind::conv;
  const OnnxNode* node = nullptr;
  int from = 0;
  std::string weight_name;    // the initializer that it comes from
  std::string kept_name;      // of the weight as a parameter; "": the layer's name and ".weight"
  std::string bias_name;      // likewise
  std::vector<float> weight;  // in PyTorch's order
  std::vector<float> bias;
  std::vector<std::int64_t> weight_shape;  // of an affine layer, and of a bias with a name of its own
  std::vector<std::int64_t> bias_shape;
  bool weight_fixed = false;  // affine only
  bool bias_fixed = false;
  ConvLayer conv;
  std::int64_t channels = 0;  // of its output
};

// One number for each channel, from a constant.
struct ChannelNumbers {
  std::vector<float> values;
  std::vector<std::int64_t> shape;  // in the file
  std::string name;                 // as a parameter; "": the exporter made it up
  std::string origin;
  bool fixed = true;  // else it is trained
};

// What the name of a value stands for: a constant, or the output of a layer.
struct ImportedValue {
  std::shared_ptr<const OnnxTensor> constant;  // null: a layer's output
  std::string origin;                          // of a constant: the initializer that it comes from
  std::shared_ptr<PendingLayer> pending;       // a layer not in the graph yet
  int layer = -1;
  int rank = 4;                // 4: an image, 2: a vector
  bool channels_last = false;  // the file's order is [N, H, W, C]
  Padding2d padding;           // of zeros, for the next convolution or pooling
  bool softmax = false;        // a Softmax that was left out
};

class Importer {
 public:
  explicit Importer(const OnnxModel& model);
  ImportedModel run();

 private:
  using Handler = ImportedValue (Importer::*)(const OnnxNode&);
  struct Known;
  static const Known* find(std::string_view type);
  static std::string known_types();

  // The frame: import.cpp.
  void open_input();
  void translate(const OnnxNode& node);
  bool try_fold(const OnnxNode& node);
  void finish(const std::string& output);
  ImportedValue& value(const OnnxNode& node, std::size_t input);
  // The constant that is input `input`, or null where that is left out.
  const ImportedValue* constant(const OnnxNode& node, std::size_t input);
  // A layer's output, which is in the graph from now on.
  ImportedValue& activation(const OnnxNode& node, std::size_t input);
  // The same with the channels first and nothing pending; `padding` says whether padding may be.
  ImportedValue& image(const OnnxNode& node, std::size_t input, bool padding = false);
  void build(ImportedValue& value);
  // Real numbers of a constant that must have `count` elements.
  std::vector<float> numbers(const OnnxNode& node, std::size_t input, std::int64_t count);
  void keep(const std::vector<float>& values, std::vector<float>& flat);
  // The name of an initializer where that is a parameter's or a buffer's of a module; "" where an exporter chose it.
  std::string given_name(const std::string& origin) const;
  void rename(const std::string& parameter, const std::string& name, const std::vector<std::int64_t>& shape);
  void warn_of_folding() const;
  void refuse_unsupported() const;
  // Counts numbers that are copied or computed; throws where they are far more than the file holds.
  void charge(std::int64_t elements);
  bool only_reader(const OnnxNode& node, std::size_t input) const;
  std::vector<std::int64_t> extents(const ImportedValue& value) const;
  bool is_batch(std::int64_t extent) const;
  bool non_negative(int layer) const;

  // One function for each type of node: import_layers.cpp.
  ImportedValue conv(const OnnxNode& node);
  ImportedValue gemm(const OnnxNode& node);
  ImportedValue matmul(const OnnxNode& node);
  ImportedValue linear(const OnnxNode& node, const OnnxTensor& weight, bool transpose);
  ImportedValue batch_norm(const OnnxNode& node);
  ImportedValue activate(const OnnxNode& node, Activation kind);
  ImportedValue relu(const OnnxNode& node) { return activate(node, Activation::relu); }
  ImportedValue sigmoid(const OnnxNode& node) { return activate(node, Activation::sigmoid); }
  ImportedValue tanh(const OnnxNode& node) { return activate(node, Activation::tanh); }
  ImportedValue gelu(const OnnxNode& node);
  ImportedValue clip(const OnnxNode& node);
  ImportedValue max_pool(const OnnxNode& node);
  ImportedValue average_pool(const OnnxNode& node);
  ImportedValue pool(const OnnxNode& node, PoolLayer layer, const OnnxWindow& found);
  ImportedValue global_average_pool(const OnnxNode& node);
  ImportedValue global_max_pool(const OnnxNode& node);
  ImportedValue lrn(const OnnxNode& node);
  ImportedValue dropout(const OnnxNode& node);
  ImportedValue add(const OnnxNode& node);
  // With constants: import_affine.cpp.
  ImportedValue sub(const OnnxNode& node);
  ImportedValue mul(const OnnxNode& node);
  ImportedValue div(const OnnxNode& node);
  ImportedValue add_constant(const OnnxNode& node, std::size_t constant_input);
  ImportedValue affine(const OnnxNode& node, std::size_t input, const ChannelNumbers& scale,
                       const ChannelNumbers* shift);
  std::size_t constant_side(const OnnxNode& node, const char* what);
  std::int64_t channels_of(const ImportedValue& x) const;
  ChannelNumbers channel_numbers(const OnnxNode& node, std::size_t constant_input, bool may_train);
  // ... and import_shapes.cpp.
  ImportedValue reduce_mean(const OnnxNode& node);
  ImportedValue flatten(const OnnxNode& node);
  ImportedValue flattened(const ImportedValue& from);
  ImportedValue reshape(const OnnxNode& node);
  ImportedValue squeeze(const OnnxNode& node);
  ImportedValue transpose(const OnnxNode& node);
  ImportedValue pad(const OnnxNode& node);
  ImportedValue softmax(const OnnxNode& node);
  ImportedValue identity(const OnnxNode& node);
  ImportedValue cast(const OnnxNode& node);
  ImportedValue cast_like(const OnnxNode& node);
  ImportedValue shape(const OnnxNode& node);

  const OnnxModel& model_;
  ImportedModel result_;
  LayerNames names_;
  std::map<std::string, ImportedValue> values_;
  std::map<std::string, std::vector<const OnnxNode*>> readers_;
  std::map<std::string, std::string> weight_users_;  // which node took an initializer's weights
  std::vector<const OnnxNode*> unsupported_;
  std::set<std::string> unsupported_values_;  // what they and all behind them make
  int folded_norms_ = 0;                      // convolutions that a batch normalisation was folded into
  std::int64_t declared_batch_ = -1;          // where the file fixes it
  std::int64_t elements_left_ = 0;            // see charge()
};

}  // namespace ddp
