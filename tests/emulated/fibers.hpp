// Thread blocks on the CPU: every thread is a fiber, and goes on until it has to wait for the others of its warp or
// block.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

namespace heed::emulated {

constexpr int kLanes = 32;
/// What each lane of a warp brings to an instruction that they execute together.
using LaneWords = std::array<std::array<std::uint32_t, 8>, kLanes>;

/// Runs `blocks` thread blocks, one after the other, of `threads` threads each. Warps take turns in random order, and
/// each runs as far as it can: what is right only in a certain order goes wrong here, too.
void launch(int blocks, int threads, const std::function<void()>& body);
/// Runs them side by side, each as far as it can, for blocks that wait for each other. Each has shared memory of its
/// own. So many of them are a cluster.
void launch_side_by_side(int blocks, int threads, const std::function<void()>& body, int cluster = 1);
/// The same where there is room for so many at a time: each of the others begins when one before it has ended.
void launch_some_side_by_side(int blocks, int threads, const std::function<void()>& body, int at_a_time);

/// Of the thread that is running.
int thread_index();
int thread_count();  ///< of its block
int block_index();
int block_count();

/// Of the running thread's block in its cluster.
int cluster_rank();
/// Waits for the other threads of the cluster but those that have ended.
void join_cluster();
/// Does something beside the threads of another block of the cluster: with its shared memory and what is under way
/// there.
void in_block_of_cluster(int rank, const std::function<void()>& action);

/// Waits for the other threads of the warp, and of the block.
void join_warp();
void join_block();
/// And returns whether it was true for some of them.
bool join_block_or(bool here);
/// For `threads` threads that meet at the gate with this number: those who join wait for all, those who arrive do not.
void join_gate(std::uint32_t number, int threads);
bool join_gate_or(std::uint32_t number, int threads, bool here);
void arrive_at_gate(std::uint32_t number, int threads);
/// Lets others go on, who may change what this thread waits for. Throws when nobody has for a long time.
void pause();
/// Waits for the other lanes, and returns what all of them brought. Good until this thread exchanges again.
const LaneWords& exchange(const std::uint32_t* words, int count);

}  // namespace heed::emulated
