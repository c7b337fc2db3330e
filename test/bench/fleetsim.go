package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The simulated fleet, and what happens to it.
const (
	fleetClusters = 10_000
	fleetMachines = 1_000_000
	fleetSeed     = 20261122

	// reportEvery is how often a kubelet writes a node in which nothing has changed (nodeStatusReportFrequency).
	reportEvery = 5 * time.Minute
	// resyncEvery is how often a check is reconciled although nothing happened (--sync-period).
	resyncEvery = 10 * time.Minute
	// stormShare of the nodes becomes Unknown at once.
	stormShare = 0.01
	// callsPerSecond is --kube-api-qps.
	callsPerSecond = 1000
)

// sizeClass is a share of a fleet's clusters, in percent, and how many machines each of these has. Within a class, too, small clusters are more
// frequent than large ones.
type sizeClass struct{ percent, least, most int }

func sizeClasses() []sizeClass {
	return []sizeClass{{60, 3, 20}, {30, 21, 200}, {9, 201, 800}, {1, 801, 4000}}
}

// generateFleet returns the machines of each of so many clusters, as many machines in all. The same seed gives the same fleet.
func generateFleet(clusters, machines int, seed uint64) []int {
	dice := rand.New(rand.NewPCG(seed, 0))
	sizes, total := make([]int, clusters), 0
	for i := range sizes {
		at, class := i*100/clusters, 0
		classes := sizeClasses()
		for ; at >= classes[class].percent; class++ {
			at -= classes[class].percent
		}
		c := classes[class]
		sizes[i] = int(float64(c.least) * math.Pow(float64(c.most)/float64(c.least), dice.Float64())) // as often between 10 and 20 as between 20 and 40
		total += sizes[i]
	}
	made := 0
	for i := range sizes {
		sizes[i] = max(sizes[i]*machines/total, 1)
		made += sizes[i]
	}
	for i := 0; made < machines; i = (i + 1) % clusters { // what was rounded away
		sizes[i]++
		made++
	}
	return sizes
}

// share is what one shard has of a fleet.
type share struct{ clusters, machines int }

// filled puts each cluster, the largest first, where there are the fewest machines, as an administrator can who assigns namespaces to shards.
func filled(sizes []int, shards int) []share {
	all := make([]share, shards)
	for _, machines := range slices.SortedFunc(slices.Values(sizes), func(a, b int) int { return cmp.Compare(b, a) }) {
		least := 0
		for i := range all {
			if all[i].machines < all[least].machines {
				least = i
			}
		}
		all[least].clusters++
		all[least].machines += machines
	}
	return all
}

// hashed puts each cluster where the hash of its name says, as an automation that labels clusters would.
func hashed(sizes []int, shards int) []share {
	all := make([]share, shards)
	for i, machines := range sizes {
		sum := fnv.New32a()
		_, _ = fmt.Fprintf(sum, "cluster-%05d", i) // it never fails
		s := &all[sum.Sum32()%uint32(shards)]
		s.clusters++
		s.machines += machines
	}
	return all
}

// unevenness is the number of machines of the largest shard, divided by the mean.
func unevenness(all []share) float64 {
	most, sum := 0, 0
	for _, s := range all {
		most, sum = max(most, s.machines), sum+s.machines
	}
	return float64(most) * float64(len(all)) / float64(sum)
}

// rates are what was derived from small fleets. Lines are over clusters, machines and checks unless they say otherwise.
type rates struct {
	heap, resident, highest line // MiB
	idle                    line // processor seconds per second
	calls                   line // to the management cluster, per second
	files                   line
	restartTime, restartCPU line // seconds

	otherShardHeap, otherShardResident, otherShardCPU line

	beat        line // processor seconds over heartbeats
	reconcile   line // processor seconds of a reconcile over the machines of a check
	failed      line // processor seconds over nodes that become Unknown at once
	failedCalls line // calls over these
}

// estimate is what a shard needs.
type estimate struct {
	share
	heap, resident, highest float64 // MiB
	steady                  float64 // processor seconds per second
	stormCPU, stormTime     float64 // seconds; the time is that of the calls within their limit
	restartCPU, restartTime float64 // seconds
	files, calls            float64
}

// estimateShard returns what a shard needs that has own of a fleet, with one check for each cluster. A shard by label has the Machines, Clusters, checks
// and kubeconfigs of all other shards in its caches, one by namespace has none of them.
func (r rates) estimateShard(own, fleet share, byLabel bool) estimate {
	c, m := float64(own.clusters), float64(own.machines)
	bad := m * stormShare
	o := estimate{
		share: own, heap: r.heap.at(c, m, c), resident: r.resident.at(c, m, c), highest: r.highest.at(c, m, c),
		steady: r.idle.at(c, m, c) + r.beat.at(m)/reportEvery.Seconds() + (c*max(r.reconcile.base, 0)+m*max(r.reconcile.slopes[0], 0))/resyncEvery.Seconds(),
		// A call that exceeds the limit of a second is made in the next one.
		stormCPU: r.failed.at(bad), stormTime: r.failedCalls.at(bad) / callsPerSecond,
		restartCPU: r.restartCPU.at(c, m, c), restartTime: r.restartTime.at(c, m, c),
		files: r.files.at(c, m, c), calls: r.calls.at(c, m, c),
	}
	if byLabel {
		c, m := float64(fleet.clusters-own.clusters), float64(fleet.machines-own.machines)
		more := func(l line) float64 { return l.at(c, m, c) - l.at(0, 0, 0) }
		o.heap += more(r.otherShardHeap)
		o.resident += more(r.otherShardResident)
		o.highest += more(r.otherShardResident)
		o.restartCPU += more(r.otherShardCPU)
		o.restartTime += more(r.otherShardCPU)
	}
	return o
}

// highestOf is the highest figure of all shards, and medianOf the one in the middle.
func highestOf(all []estimate, of func(estimate) float64) float64 {
	highest := 0.0
	for _, o := range all {
		highest = max(highest, of(o))
	}
	return highest
}

func medianOf(all []estimate, of func(estimate) float64) float64 {
	values := make([]float64, 0, len(all))
	for _, o := range all {
		values = append(values, of(o))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
