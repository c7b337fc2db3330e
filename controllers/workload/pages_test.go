package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// older returns an API server like those before v1.34, without streaming lists, with so many nodes of 2 KiB. For resourceVersion 0 it
// returns all nodes from its cache, without pages. If nodes is -1, it announces further pages for ever.
func older(t *testing.T, nodes int) *httptest.Server {
	t.Helper()
	labels := strings.Repeat("x", 2<<10)
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") == "true":
			writeStatus(w, http.StatusUnprocessableEntity, "Invalid")
			return
		case query.Has("watch"):
			writeJSON(w, "")
			_ = http.NewResponseController(w).Flush() // the client sees whether it came
			<-r.Context().Done()
			return
		}
		first, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		if limit == 0 || query.Get("resourceVersion") == "0" {
			limit = nodes
		}
		last, more := first+limit, ""
		if nodes < 0 {
			more = strconv.Itoa(last)
		} else if last = min(last, nodes); last < nodes {
			more = strconv.Itoa(last)
		}
		kind, version := "Node", "v1"
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			kind, version = "PartialObjectMetadata", "meta.k8s.io/v1"
		}
		items := make([]string, 0, limit)
		for i := first; i < last; i++ {
			items = append(items, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":"n%d","resourceVersion":"7","annotations":{"a":%q}}}`,
				kind, version, i, labels))
		}
		writeJSON(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`,
			kind, version, more, strings.Join(items, ",")))
	})
}

func TestMoreNodesThanGoIntoOneAnswerAreReadInPages(t *testing.T) {
	const nodes = 1700
	cached := cacheOfNodes(t, ways(t, older(t, nodes)))
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	ended := make(chan error)
	go func() { ended <- cached.Start(ctx) }()
	if !cached.WaitForCacheSync(ctx) {
		t.Fatal("the nodes were not read")
	}
	list := &corev1.NodeList{}
	if err := cached.List(ctx, list); err != nil || len(list.Items) != nodes {
		t.Errorf("%d nodes were read, %v; want %d", len(list.Items), err, nodes)
	}
	done()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNodesAreAskedForLiveInPages(t *testing.T) {
	const nodes = 1700
	versions, err := NewClusters(oneServer{config: configOf(ways(t, older(t, nodes)))}).nodeVersions(t.Context(), c1)
	if err != nil || len(versions) != nodes || versions["n1699"] != "7" {
		t.Errorf("%d nodes were read, %v; want %d", len(versions), err, nodes)
	}
}

func TestAListWhosePagesDoNotEndIsCutOff(t *testing.T) {
	transports := routed(t, c1, older(t, -1), NewTransports(1<<20, testclock.NewFakePassiveClock(noon.Time)))
	c, err := client.NewWithWatch(configOf(transports), client.Options{Mapper: nodesOnly()})
	must.Do(t, err)
	list := &corev1.NodeList{}
	for pages := 0; err == nil && pages < 200; pages++ {
		err = c.List(t.Context(), list, client.Limit(50), client.Continue(list.Continue))
	}
	if !errors.Is(err, errPages) {
		t.Errorf("the list ended with %v", err)
	}
	if unsure, _ := transports.routeOf(c1).circuit.state(noon.Time); !unsure {
		t.Error("the cache of nodes is believed")
	}
}
