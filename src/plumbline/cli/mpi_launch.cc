#include "plumbline/cli/mpi_launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace plumbline::cli {
namespace {

std::atomic<pid_t> g_child{0};  // for the signal handler

void PassOn(int signal) {
  if (const pid_t pid = g_child.load(); pid > 0) kill(pid, signal);
}

void PassSignalsTo(pid_t pid) {
  g_child.store(pid);
  std::signal(SIGINT, PassOn);
  std::signal(SIGTERM, PassOn);
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

std::vector<std::string> MpirunCommand(int ranks, char** argv) {
  std::vector<std::string> command = {"mpirun", "--quiet", "--oversubscribe",    "--bind-to",
                                      "none",   "-n",      std::to_string(ranks)};
  if (geteuid() == 0) command.insert(command.begin() + 1, "--allow-run-as-root");
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  command.emplace_back(length > 0 ? std::string(self, static_cast<size_t>(length)) : argv[0]);
  for (char** argument = argv + 1; *argument != nullptr; ++argument) command.emplace_back(*argument);
  return command;
}

}  // namespace

bool StartedByMpirun() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

int MpirunRank() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? std::atoi(rank) : 0;
}

Result<int> RunUnderMpirun(const RunOptions& options, char** argv) {
  ASSIGN_OR_RETURN(const RuntimeOptions runtime, ToRuntimeOptions(options));
  std::vector<std::string> command = MpirunCommand(runtime.degrees.Ranks(), argv);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);

  int failure[2];  // what execvp says, if it returns
  if (pipe2(failure, O_CLOEXEC) != 0) return Failed("mpirun: got {}, want a pipe", std::strerror(errno));
  const pid_t pid = fork();
  if (pid < 0) return Failed("mpirun: got {}, want a process", std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    if (write(failure[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  PassSignalsTo(pid);
  close(failure[1]);
  int error = 0;
  const bool failed = read(failure[0], &error, sizeof error) == sizeof error;
  close(failure[0]);
  const int code = WaitFor(pid);
  if (failed) return InvalidInput("--launcher mpi: got {}, want mpirun on the PATH", std::strerror(error));
  return code == 0 || code == 2 ? code : 1;
}

Result<int> RunInChild(const std::function<int()>& rank) {
  const pid_t self = getpid(), pid = fork();
  if (pid < 0) return Failed("rank: got {}, want a process", std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(1);  // it is gone already
    std::exit(rank());
  }
  PassSignalsTo(pid);
  return WaitFor(pid);
}

Status ServeMpiRank(const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  return {};
}

}  // namespace plumbline::cli
