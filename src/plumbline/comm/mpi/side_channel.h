// How processes that are ranks of one job learn of each other's end. Every rank holds a socket to rank 0,
// which passes news on; a thread in each process waits for news in the kernel, so it arrives while the rank
// computes. A socket that ends without a goodbye means that its process is dead, however it died.
//
// Rank 0 decides which error of a family came first.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/comm/poison.h"

namespace plumbline {

class SideChannel {
 public:
  // Where rank 0 listens, as the other ranks are told: "host port secret".
  struct Listener {
    int socket = -1;
    std::string address;
  };
  // `one_host`: no rank is on another machine; then nothing beyond this one can connect.
  static Result<Listener> Listen(bool one_host);
  // On rank 0, with its listener: waits for all other ranks. On another rank, with the listener's address.
  static Result<std::unique_ptr<SideChannel>> Accept(const Listener& listener, int ranks);
  static Result<std::unique_ptr<SideChannel>> Connect(const std::string& address, int rank);
  // Ends the thread and the sockets; the others take it for a death unless Goodbye came before.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  // The state of a family, made when first heard of.
  std::shared_ptr<Poison> Family(int family);
  // Poisons the family everywhere with an error of `rank`, unless it is poisoned, and returns what poisons
  // it.
  Error Abort(int family, int rank, const Error& error);

  // Tells all that this rank leaves group `context`; whether a rank has.
  void Leave(int context);
  bool HasLeft(int context, int rank);

  // The end of this process is expected from now on.
  void Goodbye();
  // Whether some rank died.
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  enum class Kind : uint32_t { kPoison, kLost, kLeft, kGoodbye };
  struct News {
    Kind kind;
    int32_t subject;  // family or context
    int32_t rank;
    int32_t code = 0;
    std::string text = {};
  };

  // `sockets` [ranks] on rank 0, [1] elsewhere; -1 where there is none.
  SideChannel(int rank, std::vector<int> sockets);
  void Watch();
  // Reads one piece of news; false at the end of the socket.
  static bool Read(int socket, News& news);
  static void Write(int socket, const News& news);
  void Tell(const News& news);
  void Hear(int from, const News& news);
  void HearPoison(const News& news);
  void Lose(int rank);

  const int rank_;
  std::vector<int> sockets_;
  int wake_ = -1;  // an eventfd that ends the thread
  std::atomic<bool> lost_{false};
  std::mutex write_mutex_;  // orders what is told
  std::mutex mutex_;        // of what follows
  std::map<int, std::shared_ptr<Poison>> families_;
  std::set<std::pair<int, int>> left_;  // context, rank
  std::set<int> leaving_;               // said goodbye
  Error loss_;
  std::thread watcher_;
};

}  // namespace plumbline
