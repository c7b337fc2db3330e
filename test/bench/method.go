package main

// method says how the figures are taken, and what distorts them.
const method = `Contenders: kubemend's manager, and Cluster API's own MachineHealthCheck reconciler with ClusterCache and the options of its core
(100 requests per second to the management cluster, bursts of 200, 50 workers, 20 and 30 to each workload cluster, priority
queue on), which reconciles a check at most once in 15 s; at one size also with the feature gate off that
sets this limit. Each contender is a process of its own with a new management and a new workload API server, with the same objects:
Machines of about 4 KiB with 11 conditions, Nodes of about 8 KiB, one MachineHealthCheck for each cluster (Ready False or
Unknown for 60 s). Many clusters share one workload API server; a proxy in between shows each its own nodes. No other controller runs.

- **Marked after**: from the API server's answer to the write of Ready=Unknown, dated 30 minutes back, to the watch event
  with which the Machine has HealthCheckSucceeded=False. *Alone*: the next change comes after everything that follows from the
  last one is over, for Cluster API in one cluster 31 s later. *Spread*: at even intervals, whatever the contender is doing.
  *A tenth at once*: written by 24 clients at the same time. Each change is of another machine.
- **First full pass**: from the start of the process until every Machine has HealthCheckSucceeded=True.
- **A bare client writes the same patches**: the least time that a first full pass can take. After all other figures the contender is ended, and
  HealthCheckSucceeded is removed from all its Machines. Then a client writes the conditions back to the same API server: with client-go over one
  connection, 32 at a time, at most 1000 requests per second in bursts of 2000, with the merge patches of kubemend (both lists of conditions,
  resourceVersion and uid; only the metadata is asked for in return). The same connection has a watch on all Machines, as a contender has.
  From the first patch to the watch event with which the last Machine has the condition again.
- **Patches, events, reads**: PATCH, POST and GET in rest_client_requests_total for the management cluster, reads also for workload
  clusters, without ClusterCache's probes, which it counts itself. For changes alone everything that follows is counted, for the others until
  the contender was quiet for 2 s.
- **Reconciles**: controller_runtime_reconcile_total of the controller; for Cluster API with its limit capi_reconcile_total, which leaves out those that
  the limit puts off. For heartbeats, reconciles of every controller but ClusterCache's count.
- **1000 heartbeats**: 100 in a second, each a write of all conditions of a node in which only lastHeartbeatTime changes. Processor time is
  process_cpu_seconds_total until the contender is quiet again, without what an idle one needs in that time.
- **Steady reconcile**: forced by an annotation on one machine of each cluster, so it includes one such event. Allocations are
  go_memstats_mallocs_total, without those of an idle contender in that time.
- **Memory**: process_resident_memory_bytes, read every second while processor time is not measured, since each reading costs some.
  What a reading costs is measured too, and left out.
- **API server**: its own process_cpu_seconds_total; most of a first full pass is the time that it takes to patch every machine once.

What distorts the floor of the first full pass: the bare client starts no process, lists nothing, decides nothing and decodes no watch event, so a contender
cannot be as fast. The API server has served some thousand writes more by then, and the client runs in the process that measures. In many clusters kubemend
writes more than 32 Machines at a time.

What distorts all of them: API servers, etcd, the proxies, the contender and the clients that write and watch share these cores, so a delay
is also theirs. There is one run of each; of fewer than 100 samples p99 is the highest. Processor time is counted in steps of
10 ms. In many small clusters few machines share what any reconcile costs. The machines have no owners, so no controller reacts
to a machine that is marked unhealthy. Ratios are those of the second contender to the first.
`
