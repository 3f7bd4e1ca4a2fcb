// A wrapper of oneDNN: converts errors, binds a primitive to its memories once for many executions, and hides the
// differences between oneDNN 2.6 and 3.
//
//   const auto f = onednn::describe<dnnl::inner_product_forward>(attributes, prop_kind, x, w, b, y);
//   BoundPrimitive forward{dnnl::inner_product_forward(f)};
//   forward.bind(DNNL_ARG_SRC, x);
//   forward.point(DNNL_ARG_SRC, data);
//   forward.run("inner product forward");
#pragma once

#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace ddp::onednn {

// Runs `call`; a oneDNN error becomes Error(internal) or Error(out_of_memory) naming `what`.
template <class Call>
auto checked(const char* what, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const dnnl::error& error) {
    throw Error(error.status == dnnl_out_of_memory ? ExitCode::out_of_memory : ExitCode::internal,
                fmt::format("oneDNN: {}: {} (status {})", what, error.what(), static_cast<int>(error.status)));
  }
}

inline dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// A tensor of floats in a plain format.
inline dnnl::memory::desc floats(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

// Attributes with a user-provided scratchpad, so that the plan accounts for all memory.
inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Appends ReLU to the operation. With a slope of zero for negative values oneDNN takes a maximum, which turns NaN into zero;
// with another slope it multiplies, and NaN propagates. The smallest one that is not denormal leaves 1e-38 of a
// negative value, which the next sum loses.
inline void append_relu(dnnl::primitive_attr& attributes) {
  constexpr float kSlope = std::numeric_limits<float>::min();
  dnnl::post_ops ops;
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, kSlope, 0.0F);
#else
  ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, kSlope, 0.0F);
#endif
  attributes.set_post_ops(ops);
}

// A primitive's description from `operation`, the arguments of what oneDNN 2 calls its operation descriptor.
template <class Primitive, class... Operation>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attributes, const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), operation..., attributes};
#else
  return {typename Primitive::desc(operation...), attributes, engine()};
#endif
}

// The same for a backward direction; `hint` describes the forward one.
template <class Primitive, class Hint, class... Operation>
typename Primitive::primitive_desc describe_backward(const Hint& hint, const dnnl::primitive_attr& attributes,
                                                     const Operation&... operation) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), operation..., hint, attributes};
#else
  return {typename Primitive::desc(operation...), attributes, engine(), hint};
#endif
}

// A primitive with its arguments; memories are created without storage and receive a pointer before each execution.
class BoundPrimitive {
 public:
  BoundPrimitive() = default;
  explicit BoundPrimitive(dnnl::primitive primitive) : primitive_(std::move(primitive)) {}

  void bind(int argument, const dnnl::memory::desc& descriptor) {
    arguments_.insert_or_assign(argument, dnnl::memory(descriptor, engine(), DNNL_MEMORY_NONE));
  }
  // The library does not accept pointers to const, although it does not write to its inputs.
  void point(int argument, const void* data) { arguments_.at(argument).set_data_handle(const_cast<void*>(data)); }
  void run(const char* what) {
    checked(what, [this] {
      dnnl::stream stream(engine());
      primitive_.execute(stream, arguments_);
      stream.wait();
    });
  }
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// Copies between two formats of the same tensor; does nothing if they are equal.
class Reorder {
 public:
  Reorder() = default;
  Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
    if (from == to) return;
    dnnl::reorder::primitive_desc description(engine(), from, engine(), to);
    call_ = BoundPrimitive(dnnl::reorder(description));
    call_.bind(DNNL_ARG_FROM, from);
    call_.bind(DNNL_ARG_TO, to);
  }
  bool needed() const { return static_cast<bool>(call_); }
  // Returns the data in the format `to`: `from` itself if the formats are equal.
  const void* apply(const void* from, void* to) {
    if (!needed()) return from;
    call_.point(DNNL_ARG_FROM, from);
    call_.point(DNNL_ARG_TO, to);
    call_.run("reorder");
    return to;
  }

 private:
  BoundPrimitive call_;
};

}  // namespace ddp::onednn
