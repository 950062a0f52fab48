#pragma once

#include <cstdint>
#include <string>

#include "base/limits.hpp"
#include "tests/sim/cluster/network.hpp"

namespace outrider::sim::cluster {

/// Mistakes that nobody made, for the test of the simulation itself.
enum class PlantedBug : uint8_t {
  none,
  lost_done,         ///< The first target's Done never arrives, however often it is sent.
  stale_generation,  ///< What a target said comes once more, and passes for its successor's.
  foreign_block,     ///< One that is handed over is of another text, now and then.
  freed_twice,       ///< Engines free a block twice now and then: the cache aborts.
  leaked_block,      ///< Engines give a block less back than they took, now and then.
};

/// What one run plays: a pure function of its seed.
struct Scenario {
  uint64_t seed = 1;
  PlantedBug bug = PlantedBug::none;

  bool is_hostile = false;  ///< Single messages are lost, repeated, delayed and overtaken.
  uint32_t gateways = 1;    ///< Each with a router; workers join all.
  uint32_t targets = 1;
  uint32_t drafts = 0;
  bool has_stranger = false;      ///< A target of another model wants to join.
  bool is_mixed = false;          ///< And may: nothing says which of the two models it is to be.
  bool is_tight = false;          ///< Few slots and few blocks: some are told to come back later.
  bool has_long_prompts = false;  ///< Of several parts.
  uint32_t sessions_max = limits::sessions_open_max;  ///< Of a front desk.
  bool has_stores = false;  ///< Below the targets' pools; what is on disk survives a process.
  bool has_lines = false;   ///< Targets that leave give their blocks away.
  Duration line_message{};  ///< What one of their messages takes at most, behind the one before.
  bool has_rock = false;    ///< Nothing happens to the first target, nor on the way to it.
  uint32_t requests = 8;    ///< While there is trouble; then some more.
  uint32_t faults = 3;
  Duration trouble{};  ///< How long.
  Travel travel;
};

Scenario scenario_of(uint64_t seed, PlantedBug bug = PlantedBug::none);
std::string describe(const Scenario& scenario);

}  // namespace outrider::sim::cluster
