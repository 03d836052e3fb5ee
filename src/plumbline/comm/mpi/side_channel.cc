#include "plumbline/comm/mpi/side_channel.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <sstream>

namespace plumbline {
namespace {

constexpr int kMeetMilliseconds = 30'000;
constexpr auto kVerdict = std::chrono::seconds(2);  // how long to wait for rank 0's word on who was first
constexpr uint32_t kMaxText = 1 << 16;

struct Header {
  uint32_t kind;
  int32_t subject;
  int32_t rank;
  int32_t code;
  uint32_t length;
};

struct Greeting {
  uint64_t secret;
  int32_t rank;
};

std::unexpected<Error> SystemError(const char* what) {
  return Failed("mpi side channel: {}: {}", what, std::strerror(errno));
}

bool ReadAll(int socket, void* to, size_t size) {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = recv(socket, bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void WriteAll(int socket, const void* from, size_t size) {
  const auto* bytes = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // a dead peer; its socket's end says so
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
}

// News is short and rare: sent at once, and the loss of a host noticed.
void SetUp(int socket) {
  const int on = 1;
  const int seconds = 1;
  const int milliseconds = 5000;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

void CloseAll(const std::vector<int>& sockets) {
  for (int socket : sockets) {
    if (socket >= 0) close(socket);
  }
}

}  // namespace

Result<SideChannel::Listener> SideChannel::Listen(bool one_host) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return SystemError("socket");
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(one_host ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof(place);
  if (bind(listener, reinterpret_cast<sockaddr*>(&place), size) != 0 || listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    close(listener);
    return SystemError("listen");
  }
  char host[256] = "127.0.0.1";
  if (!one_host) gethostname(host, sizeof(host) - 1);
  std::random_device random;
  const uint64_t secret = (uint64_t{random()} << 32) | random();
  return Listener{listener, fmt::format("{} {} {}", host, ntohs(place.sin_port), secret)};
}

Result<std::unique_ptr<SideChannel>> SideChannel::Accept(const Listener& listener, int ranks) {
  uint64_t secret = 0;
  std::string host, port;
  std::istringstream(listener.address) >> host >> port >> secret;
  std::vector<int> sockets(ranks, -1);
  const auto fail = [&](std::unexpected<Error> error) {
    CloseAll(sockets);
    close(listener.socket);
    return error;
  };
  for (int missing = ranks - 1; missing > 0;) {
    pollfd poll_listener = {.fd = listener.socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&poll_listener, 1, kMeetMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return fail(Failed("mpi side channel: got {} of {} ranks in {} s", ranks - missing, ranks, 30));
    const int peer = accept4(listener.socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) return fail(SystemError("accept"));
    const timeval patience = {.tv_sec = 5, .tv_usec = 0};
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    Greeting greeting = {};
    if (!ReadAll(peer, &greeting, sizeof(greeting)) || greeting.secret != secret || greeting.rank <= 0 ||
        greeting.rank >= ranks || sockets[greeting.rank] >= 0) {
      close(peer);  // none of ours
      continue;
    }
    const timeval forever = {};
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    SetUp(peer);
    sockets[greeting.rank] = peer;
    --missing;
  }
  close(listener.socket);
  return std::unique_ptr<SideChannel>(new SideChannel(0, std::move(sockets)));
}

Result<std::unique_ptr<SideChannel>> SideChannel::Connect(const std::string& address, int rank) {
  Greeting greeting = {.secret = 0, .rank = rank};
  std::string host, port;
  std::istringstream(address) >> host >> port >> greeting.secret;
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* places = nullptr;
  if (const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &places); code != 0) {
    return Failed("mpi side channel: host {}: {}", host, gai_strerror(code));
  }
  int hub = -1;
  for (const addrinfo* place = places; place != nullptr && hub < 0; place = place->ai_next) {
    hub = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (hub >= 0 && connect(hub, place->ai_addr, place->ai_addrlen) != 0) {
      close(hub);
      hub = -1;
    }
  }
  freeaddrinfo(places);
  if (hub < 0) return SystemError("connect to rank 0");
  SetUp(hub);
  WriteAll(hub, &greeting, sizeof(greeting));
  return std::unique_ptr<SideChannel>(new SideChannel(rank, {hub}));
}

SideChannel::SideChannel(int rank, std::vector<int> sockets)
    : rank_(rank), sockets_(std::move(sockets)), wake_(eventfd(0, EFD_CLOEXEC)) {
  watcher_ = std::thread([this] { Watch(); });
}

SideChannel::~SideChannel() {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
  watcher_.join();
  CloseAll(sockets_);
  close(wake_);
}

void SideChannel::Watch() {
  std::vector<pollfd> polls;
  for (int socket : sockets_) polls.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  polls.push_back({.fd = wake_, .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(polls.data(), polls.size(), -1) < 0) continue;
    if (polls.back().revents != 0) return;
    for (size_t i = 0; i + 1 < polls.size(); ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      News news;
      const int from = rank_ == 0 ? static_cast<int>(i) : 0;
      if (Read(polls[i].fd, news)) {
        Hear(from, news);
      } else {
        polls[i].fd = -1;
        Lose(from);
      }
    }
  }
}

bool SideChannel::Read(int socket, News& news) {
  Header header;
  if (!ReadAll(socket, &header, sizeof(header)) || header.length > kMaxText) return false;
  news = {static_cast<Kind>(header.kind), header.subject, header.rank, header.code};
  news.text.resize(header.length);
  return ReadAll(socket, news.text.data(), header.length);
}

void SideChannel::Write(int socket, const News& news) {
  if (socket < 0) return;
  const auto length = static_cast<uint32_t>(std::min<size_t>(news.text.size(), kMaxText));
  const Header header = {static_cast<uint32_t>(news.kind), news.subject, news.rank, news.code, length};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(news.text, 0, length);
  WriteAll(socket, bytes.data(), bytes.size());
}

void SideChannel::Tell(const News& news) {
  const std::lock_guard lock(write_mutex_);
  for (int socket : sockets_) Write(socket, news);
}

void SideChannel::Hear(int from, const News& news) {
  if (news.kind == Kind::kPoison) return HearPoison(news);
  if (news.kind == Kind::kLost) return Lose(news.rank);
  {
    const std::lock_guard lock(mutex_);
    if (news.kind == Kind::kLeft) left_.emplace(news.subject, news.rank);
    if (news.kind == Kind::kGoodbye) leaving_.insert(from);
  }
  if (rank_ == 0 && news.kind == Kind::kLeft) Tell(news);
}

// Rank 0 passes on what it heard first; the others believe rank 0.
void SideChannel::HearPoison(const News& news) {
  const std::shared_ptr<Poison> family = Family(news.subject);
  if (family->set()) return;
  family->SetAsIs({static_cast<ErrorCode>(news.code), news.text});
  if (rank_ == 0) {
    const Error first = family->error();
    Tell({Kind::kPoison, news.subject, news.rank, static_cast<int32_t>(first.code), first.message});
  }
}

void SideChannel::Lose(int rank) {
  std::vector<int> families;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_.contains(rank) || lost()) return;
    loss_ = Failed("rank {}: its process died", rank).error();
    for (const auto& [family, poison] : families_) families.push_back(family);
    lost_.store(true, std::memory_order_release);
  }
  for (int family : families) {
    HearPoison({Kind::kPoison, family, rank, static_cast<int32_t>(loss_.code), loss_.message});
  }
  if (rank_ == 0) Tell({Kind::kLost, 0, rank});  // for families that rank 0 has not heard of
}

std::shared_ptr<Poison> SideChannel::Family(int family) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Poison>& poison = families_[family];
  if (poison == nullptr) {
    poison = std::make_shared<Poison>();
    if (lost()) poison->SetAsIs(loss_);
  }
  return poison;
}

Error SideChannel::Abort(int family, int rank, const Error& error) {
  const std::shared_ptr<Poison> poison = Family(family);
  const News news = {Kind::kPoison, family, rank, static_cast<int32_t>(error.code),
                     fmt::format("rank {}: {}", rank, error.message)};
  if (rank_ == 0) {
    HearPoison(news);
    return poison->error();
  }
  if (!poison->set()) Tell(news);
  const auto end = std::chrono::steady_clock::now() + kVerdict;
  while (!poison->set() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  poison->SetAsIs({error.code, news.text});
  return poison->error();
}

void SideChannel::Leave(int context) { Tell({Kind::kLeft, context, rank_}); }

bool SideChannel::HasLeft(int context, int rank) {
  const std::lock_guard lock(mutex_);
  return left_.contains({context, rank});
}

void SideChannel::Goodbye() { Tell({Kind::kGoodbye, 0, rank_}); }

}  // namespace plumbline
