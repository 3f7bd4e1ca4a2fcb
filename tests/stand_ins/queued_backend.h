// A test backend with the CPU's operators that executes its queue only when the host waits, and no further than what it
// waits for: as on a GPU, a program that reads too early sees stale data, and one that overwrites an input too early
// corrupts the result. Uploads beside the queue happen at a random time before they are joined.
//
//   const std::unique_ptr<Backend> device = make_queued_backend();
//   device->queue().upload(there, here, bytes);   // `here` must not change until synchronize()
//   device->queue().mark(*event);
//   device->math().fill_zero(there, bytes);
//   event->wait();                                // now the copy has happened, but nothing after it
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/host_queue.h"
#include "base/clock.h"
#include "stand_ins/ops_in_front.h"

namespace ddp {

class LazyMemory final : public HostMemory {
 public:
  bool on_host() const override { return false; }
  std::size_t available_bytes() const override { return std::size_t{1} << 40U; }
};

class LazyQueue final : public HostQueue {
 public:
  using Work = std::function<void()>;

  // `beside`: executes some of its work at random times; null: none.
  explicit LazyQueue(LazyQueue* beside = nullptr) : beside_(beside) {}

  void upload(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<LazyEvent>(); }
  void mark(DeviceEvent& event) override {
    auto& place = static_cast<LazyEvent&>(event);
    if (recorded_ == nullptr) {
      place.queue = this;
      ++place.marked;
    } else {
      ++recorded_marks;
    }
    enqueue([&place, counted = recorded_ == nullptr] {
      place.time = now();
      if (counted) ++place.done;
    });
  }
  void wait_for(const DeviceEvent& event) override {
    if (recorded_ != nullptr) throw std::logic_error("a wait for another queue cannot be recorded");
    const auto& place = static_cast<const LazyEvent&>(event);
    enqueue([&place, marked = place.marked] {
      while (place.done < marked) place.queue->execute_next();
    });
  }
  void synchronize() override {
    while (!queue_.empty()) execute_next();
  }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    auto recording = std::make_unique<LazyRecording>(*this);
    recorded_ = &recording->work;
    work();
    recorded_ = nullptr;
    ++recordings;
    return recording;
  }

  void enqueue(Work work) {
    if (recorded_ != nullptr) {
      recorded_->push_back(std::move(work));
    } else {
      queue_.push_back(std::move(work));
    }
  }

  int recordings = 0;
  int recorded_marks = 0;
  int replays = 0;

 private:
  struct LazyEvent final : DeviceEvent {
    bool reached() override {
      if (done < marked) queue->execute_next();
      return done == marked;
    }
    void wait() override {
      while (!reached()) continue;
    }
    double seconds_since(const DeviceEvent& earlier) const override {
      return time - static_cast<const LazyEvent&>(earlier).time;
    }

    LazyQueue* queue = nullptr;
    int marked = 0;  // how many times, outside recordings
    int done = 0;
    double time = 0;
  };
  struct LazyRecording final : Recording {
    explicit LazyRecording(LazyQueue& owner) : queue(owner) {}
    void replay() override {
      ++queue.replays;
      for (const Work& each : work) queue.enqueue(each);
    }
    LazyQueue& queue;
    std::vector<Work> work;
  };

  void copy(void* to, const void* from, std::size_t bytes) {
    enqueue([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  void execute_next() {
    while (beside_ != nullptr && !beside_->queue_.empty() && random_() % 2 == 0) beside_->execute_next();
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    work();
  }

  std::deque<Work> queue_;
  LazyQueue* beside_;
  std::mt19937 random_{std::random_device{}()};
  std::vector<Work>* recorded_ = nullptr;
};

class LazyOps final : public OpsInFront {
 public:
  explicit LazyOps(LazyQueue& queue) : OpsInFront(make_cpu_ops()), queue_(queue) {}

  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    return std::make_unique<LazyOp>(queue_, behind().make_op(spec, x, y, kernels));
  }

 private:
  class LazyOp final : public Op {
   public:
    LazyOp(LazyQueue& queue, std::shared_ptr<Op> op) : queue_(queue), op_(std::move(op)) {}
    OpTraits traits() const override { return op_->traits(); }
    void forward(const ForwardArguments& arguments) override {
      queue_.enqueue([op = op_, later = arguments, inputs = Kept(arguments.inputs),
                      parameters = Kept(arguments.parameters), ends = KeptEnds(arguments)]() mutable {
        later.inputs = inputs.list();
        later.parameters = parameters.list();
        ends.put_into(later);
        op->forward(later);
      });
    }
    void backward(const BackwardArguments& arguments) override {
      queue_.enqueue([op = op_, later = arguments, inputs = Kept(arguments.inputs),
                      input_gradients = Kept(arguments.input_gradients), parameters = Kept(arguments.parameters),
                      parameter_gradients = Kept(arguments.parameter_gradients)]() mutable {
        later.inputs = inputs.list();
        later.input_gradients = input_gradients.list();
        later.parameters = parameters.list();
        later.parameter_gradients = parameter_gradients.list();
        op->backward(later);
      });
    }

   private:
    // The caller's memory of a list may be reused before the work runs.
    template <class T>
    class Kept {
     public:
      explicit Kept(const ArgumentList<T>& list) : all_(list.begin(), list.end()) {}
      ArgumentList<T> list() const { return ArgumentList<T>(std::span<const T>(all_)); }

     private:
      std::vector<T> all_;
    };
    // Likewise what an input and a loss are given.
    class KeptEnds {
     public:
      explicit KeptEnds(const ForwardArguments& a) {
        if (a.images != nullptr) images_ = *a.images;
        if (a.loss != nullptr) loss_ = *a.loss;
        columns_.assign(images_.step.columns.begin(), images_.step.columns.end());
      }
      void put_into(ForwardArguments& a) {
        images_.step.columns = columns_;
        a.images = &images_;
        a.loss = &loss_;
      }

     private:
      InputArguments images_;
      LossArguments loss_;
      std::vector<TableColumn> columns_;
    };

    LazyQueue& queue_;
    std::shared_ptr<Op> op_;
  };

  LazyQueue& queue_;
};

class LazyMath final : public FlatMath {
 public:
  explicit LazyMath(LazyQueue& queue) : queue_(queue) {}

  void fill_zero(void* device, std::size_t bytes) override {
    queue_.enqueue([=, this] { cpu_->fill_zero(device, bytes); });
  }
  void add(Activations sum, ConstActivations addend, std::size_t count) override {
    queue_.enqueue([=, this] { cpu_->add(sum, addend, count); });
  }
  void square_sums(const float* values, std::size_t count, double* sums, const NonfiniteCheck& check) override {
    queue_.enqueue([=, this] { cpu_->square_sums(values, count, sums, check); });
  }
  void copy(Activations to, ConstActivations from, std::size_t count, const double* skip) override {
    queue_.enqueue([=, this] { cpu_->copy(to, from, count, skip); });
  }
  void pull(float* slow, float* fast, std::size_t count, float rest, const double* skip) override {
    queue_.enqueue([=, this] { cpu_->pull(slow, fast, count, rest, skip); });
  }
  void copy_row(std::span<const TableColumn> columns, TableCursor* cursor) override {
    queue_.enqueue([=, this, all = std::vector(columns.begin(), columns.end())] { cpu_->copy_row(all, cursor); });
  }
  void update(const UpdateArguments& arguments) override {
    queue_.enqueue([=, this] { cpu_->update(arguments); });
  }

 private:
  LazyQueue& queue_;
  std::unique_ptr<FlatMath> cpu_ = make_cpu_math();
};

inline std::unique_ptr<Backend> make_queued_backend() {
  auto uploads = std::make_unique<LazyQueue>();
  auto queue = std::make_unique<LazyQueue>(uploads.get());
  auto ops = std::make_unique<LazyOps>(*queue);
  auto math = std::make_unique<LazyMath>(*queue);
  auto device = std::make_unique<DeviceContext>(std::make_unique<LazyMemory>(), std::move(queue), std::move(uploads));
  return std::make_unique<Backend>(std::move(device), std::move(ops), std::move(math));
}

}  // namespace ddp
