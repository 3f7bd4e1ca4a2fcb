// Layout plans on disk, so that kernels are timed once for a model, batch and machine.
//
//   PlanCache cache(folder);
//   std::string key = PlanCache::key(backend, stages);
//   if (auto text = cache.find(key)) ...
//   cache.store(key, to_text(plan));
//
// A cache never fails a run: what cannot be read is timed again, what cannot be written is left out.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "model/stages.h"

namespace ddp {

class PlanCache {
 public:
  // Without a folder nothing is found or stored.
  explicit PlanCache(std::optional<std::filesystem::path> folder) : folder_(std::move(folder)) {}

  // All that the fastest plan depends on: the machine, the libraries, and every stage with its shape.
  static std::string key(const Backend& backend, std::span<const Stage> stages);

  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& plan) const;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::optional<std::filesystem::path> folder_;
};

}  // namespace ddp
