#include "dispatch/engine.hpp"

namespace heed::dispatch {

Engine::~Engine() = default;

}  // namespace heed::dispatch
