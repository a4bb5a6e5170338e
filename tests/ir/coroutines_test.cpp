// Agents that take turns: order, waiting, deadlocks, errors.
#include "ir/coroutines.h"

#include <catch2/catch.hpp>
#include <random>

#include "ir/error.h"

using namespace kiln;
using Catch::Contains;

namespace {

Coroutines::Describe at_line(int line, const std::string& what) {
  return [=] { return Waiting{{"agents", line}, what}; };
}

// Two agents that hand a number to and fro, 100 times.
std::vector<int> ping_pong(Coroutines::Chooser choose) {
  Coroutines agents;
  std::vector<int> seen;
  auto player = [&](size_t turn) {
    return [&agents, &seen, turn] {
      for (int i = 0; i < 100; ++i) {
        agents.wait([&] { return seen.size() % 2 == turn; }, at_line(1, "a turn"));
        CHECK(agents.current() == turn);
        seen.push_back(static_cast<int>(agents.current()));
      }
    };
  };
  agents.run({{"even", player(0)}, {"odd", player(1)}}, std::move(choose));
  return seen;
}

}  // namespace

TEST_CASE("agents wait for each other", "[coroutines]") {
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) expected.push_back(i % 2);
  CHECK(ping_pong(Coroutines::first) == expected);
  CHECK(ping_pong(Coroutines::last) == expected);
  std::mt19937 random(1);
  CHECK(ping_pong([&](const auto& ready) { return random() % ready.size(); }) == expected);
}

TEST_CASE("the chooser says which agent goes on", "[coroutines]") {
  auto order = [](Coroutines::Chooser choose) {
    Coroutines agents;
    std::string order;
    std::vector<Agent> list;
    for (char name : {'a', 'b', 'c'})
      list.push_back({std::string(1, name), [&agents, &order, name] {
                        order += name;
                        agents.yield();
                        order += name;
                      }});
    agents.run(std::move(list), std::move(choose));
    return order;
  };
  CHECK(order(Coroutines::first) == "aabbcc");
  CHECK(order(Coroutines::last) == "ccbbaa");
  size_t turn = 0;
  CHECK(order([&](const auto& ready) { return turn++ % ready.size(); }) == "abcabc");
}

TEST_CASE("agents that all wait are a deadlock", "[coroutines]") {
  Coroutines agents;
  bool unwound = false, asked_again = true;
  auto stuck = [&] {
    struct Leave {
      bool& flag;
      ~Leave() { flag = true; }
    } leave{unwound};
    agents.wait([] { return false; }, at_line(7, "a slot"));
  };
  auto compiled = [&] {
    asked_again = agents.try_wait([] { return false; }, at_line(9, "a tile")) ||
                  agents.try_wait([] { return true; }, at_line(10, ""));
  };
  try {
    agents.run({{"one", stuck}, {"two", compiled}, {"three", [] {}}});
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.loc().line == 7);
    CHECK(error.message() ==
          "deadlock: nobody can go on\n"
          "  one waits at agents:7: a slot\n"
          "  two waits at agents:9: a tile\n"
          "  three has ended");
  }
  CHECK(unwound);
  CHECK_FALSE(asked_again);
  int runs = 0;
  agents.run({{"again", [&] { ++runs; }}});  // it can be used once more
  agents.run({});
  CHECK(runs == 1);
}

TEST_CASE("the first error of an agent ends all", "[coroutines]") {
  for (auto choose : {Coroutines::first, Coroutines::last}) {
    Coroutines agents;
    auto waiting = [&] { agents.wait([] { return false; }, at_line(1, "")); };
    auto failing = [&]() -> void {
      agents.yield();
      throw DeviceError("broken");
    };
    CHECK_THROWS_WITH(agents.run({{"a", waiting}, {"b", failing}, {"c", waiting}}, choose),
                      Contains("broken"));
  }
  Coroutines agents;
  auto asks = [&] {
    agents.wait([]() -> bool { throw DeviceError("bad question"); }, at_line(1, ""));
  };
  CHECK_THROWS_WITH(agents.run({{"a", asks}}), Contains("bad question"));
  int calls = 0;
  auto fails_later = [&] { return ++calls == 1 ? false : throw DeviceError("bad later"); };
  auto waits = [&] { agents.wait(fails_later, at_line(1, "")); };
  CHECK_THROWS_WITH(agents.run({{"a", waits}, {"b", [] {}}}), Contains("bad later"));
}
