// The optimizers, by the names of --optimizer (optim/rules/settings.h), and the factor of Muon's learning rate.
//
//   const UpdateRule rule = UpdateRule::adamw;
#pragma once

#include <cstdint>

namespace ddp {

enum class UpdateRule : std::uint8_t { sgd, adam, adamw, rmsprop, lars, lamb, muon };

// For a matrix of R rows and C columns (optim/rules/muon.h).
enum class MuonScale : std::uint8_t {
  shape,  // sqrt(max(1, R / C)): K. Jordan's, and torch.optim.Muon's "original"
  rms,    // 0.2 sqrt(max(R, C)): steps of the size of AdamW's (Liu et al., 2025), "match_rms_adamw"
  none,
};

}  // namespace ddp
