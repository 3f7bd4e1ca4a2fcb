// The text of an operator's fields, for the keys of plan caches.
//
//   Description text;
//   text.add("size", std::int64_t{5}).add("relu", true);   // " size=5 relu=1"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/window.h"

namespace ddp {

class Description {
 public:
  Description& add(std::string_view name, std::int64_t value);
  Description& add(std::string_view name, bool value);
  Description& add(std::string_view name, float value);
  Description& add(std::string_view name, std::string_view value);
  Description& add(const Window2d& window);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace ddp
