#include "actors/engine_port.hpp"

#include "base/limits.hpp"

namespace outrider::actors {
namespace {

class ModelStepper final : public Stepper {
 public:
  explicit ModelStepper(std::unique_ptr<model::Engine> engine) : engine_(std::move(engine)) {}

  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) override {
    return engine_->submit(key, std::move(request), submitted);
  }
  void cancel(RequestKey key) override { engine_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { engine_->set_parked(key, parked); }
  bool redirect(RequestKey key, std::span<const int32_t> output) override {
    return engine_->redirect(key, output);
  }
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) override {
    return engine_->fork(key, fresh, output);
  }
  void hint(RequestKey key, uint32_t choice, const model::Hint& hint) override {
    engine_->hint(key, choice, hint);
  }
  bool idle() const override { return engine_->idle(); }
  void on_arrival(std::function<void()> wake) override { engine_->on_arrival(std::move(wake)); }
  std::span<const model::ChoiceUpdate> step() override { return engine_->step(); }
  model::CacheReset forget_cached(const std::optional<std::string>& tenant) override {
    return engine_->forget_cached(tenant);
  }
  std::vector<model::CachedBlock> read_cached(const model::CachedQuery& query) override {
    return engine_->read_cached(query, limits::peer_read_bytes);
  }
  model::EngineStats stats() const override { return engine_->stats(); }
  void check_conservation() const override { engine_->check_conservation(); }

 private:
  std::unique_ptr<model::Engine> engine_;
};

}  // namespace

std::unique_ptr<Stepper> make_stepper(std::unique_ptr<model::Engine> engine) {
  return std::make_unique<ModelStepper>(std::move(engine));
}

}  // namespace outrider::actors
