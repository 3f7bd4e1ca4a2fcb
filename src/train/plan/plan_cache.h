// Layout plans on disk, so that kernels are timed once per model, image size, build and machine.
//
//   PlanCache cache(plan_cache_directory(options));
//   std::string key = PlanCache::key(backend.ops(), stages);
//   if (auto text = cache.find(key)) ...
//   cache.store(key, to_text(layout_plan));
//
// Errors of the cache never fail a run: an unreadable plan is timed again, an unwritable one is not stored.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "backend/op_factory.h"
#include "model/stages.h"

namespace ddp {

class PlanCache {
 public:
  // Without a folder the cache is disabled.
  explicit PlanCache(std::optional<std::filesystem::path> folder) : folder_(std::move(folder)) {}

  // Everything that the fastest plan depends on: the machine, the kernels, the libraries, and every stage with the shape
  // that is timed. Batches that are timed with the same number of samples share a plan, in which times are of one
  // sample.
  static std::string key(OpFactory& ops, std::span<const Stage> stages);

  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& plan) const;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::optional<std::filesystem::path> folder_;
};

}  // namespace ddp
