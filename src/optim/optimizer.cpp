#include "optim/optimizer.h"

namespace ddp {

Sgd::Sgd(Backend& backend, std::int64_t parameters, const SgdConfig& config)
    : backend_(backend), count_(parameters), config_(config) {
  if (config.momentum == 0) return;
  momentum_ = backend.allocate(static_cast<std::size_t>(parameters) * sizeof(float), "the optimizer's buffers");
}

void Sgd::update(float* parameters, const float* gradient, const UpdateControl& control) {
  SgdArguments arguments;
  arguments.weights = parameters;
  arguments.gradient = gradient;
  arguments.velocity = momentum_.at<float>(0);
  arguments.count = count_;
  arguments.lr = control.lr;
  arguments.skip = control.skip;
  arguments.coefficients = {0, static_cast<float>(config_.momentum), static_cast<float>(config_.weight_decay),
                            config_.nesterov};
  backend_.sgd(arguments);
}

std::vector<OptimizerState> Sgd::state() {
  if (momentum_.bytes() == 0) return {};
  return {{"momentum", momentum_.at<float>(0)}};
}

}  // namespace ddp
