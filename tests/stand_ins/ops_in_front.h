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
  explicit OpsInFront(std::unique_ptr<OpFactory> behind) : behind_(std::move(behind)), traits_(behind_->traits()) {
    traits_.fingerprint = "in front of " + traits_.fingerprint;
  }

  const BackendTraits& traits() const override { return traits_; }
  bool supports(const OpSpec& spec, Layout x, Layout y) const override { return behind_->supports(spec, x, y); }
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    return behind_->make_op(spec, x, y, kernels);
  }
  std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) override {
    return behind_->make_matrix_update(matrices);
  }
  KernelChooser& chooser() override { return behind_->chooser(); }

 protected:
  void describe_as(const std::string& description) { traits_.description = description; }
  OpFactory& behind() { return *behind_; }

 private:
  std::unique_ptr<OpFactory> behind_;
  BackendTraits traits_;
};

}  // namespace ddp
