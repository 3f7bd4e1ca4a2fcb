// Forwards to another set of operators; a stand-in overrides what it changes.
//
//   class Wrong final : public OpsInFront {
//    public:
//     using OpsInFront::OpsInFront;
//     std::unique_ptr<Op> make_op(...) override { return spoiled(behind().make_op(...)); }
//   };
//   Backend backend(make_host_device(), std::make_unique<Wrong>(make_cpu_ops()), make_cpu_math());
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backend/op_factory.h"

namespace ddp {

class OpsInFront : public OpFactory {
 public:
  explicit OpsInFront(std::unique_ptr<OpFactory> behind) : behind_(std::move(behind)) {}

  std::string description() const override { return behind_->description(); }
  std::string fingerprint() const override { return "in front of " + behind_->fingerprint(); }
  std::string arithmetic() const override { return behind_->arithmetic(); }
  OpSpec timed_spec(const OpSpec& spec) const override { return behind_->timed_spec(spec); }
  bool supports(const OpSpec& spec, Layout x, Layout y) const override { return behind_->supports(spec, x, y); }
  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override {
    return behind_->choose(spec, x, y, mode);
  }
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    return behind_->make_op(spec, x, y, kernels);
  }
  std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) override {
    return behind_->make_matrix_update(matrices);
  }
  bool takes_bias_into_norm() const override { return behind_->takes_bias_into_norm(); }
  Element activation_element() const override { return behind_->activation_element(); }
  void load_input(const InputSpec& spec, const InputArguments& arguments) override {
    behind_->load_input(spec, arguments);
  }
  void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) override {
    behind_->softmax_cross_entropy(spec, arguments);
  }

 protected:
  OpFactory& behind() { return *behind_; }

 private:
  std::unique_ptr<OpFactory> behind_;
};

}  // namespace ddp
