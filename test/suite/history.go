package suite

import (
	"context"
	"maps"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// History is what Machines were, one write after the other. Who only reads them now and then misses what lasts for a moment, such as the end of a deletion.
type History struct {
	events watch.Interface
	last   map[string]*clusterv1.Machine
}

// HistoryOf begins a history of the Machines that options select. Stop ends it.
func HistoryOf(ctx context.Context, c client.WithWatch, options ...client.ListOption) *History {
	ginkgo.GinkgoHelper()
	list := &clusterv1.MachineList{}
	gomega.Expect(c.List(ctx, list, options...)).To(gomega.Succeed())
	h := &History{last: map[string]*clusterv1.Machine{}}
	for i := range list.Items {
		h.last[list.Items[i].Name] = &list.Items[i]
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	var err error
	h.events, err = c.Watch(ctx, &clusterv1.MachineList{}, append(options, from)...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return h
}

// Stop ends the history.
func (h *History) Stop() { h.events.Stop() }

// Since are the Machines by their names, as they were after each write since the last call, the oldest first.
func (h *History) Since() []map[string]*clusterv1.Machine {
	var all []map[string]*clusterv1.Machine
	for {
		select {
		case e, goesOn := <-h.events.ResultChan():
			m, is := e.Object.(*clusterv1.Machine)
			if !goesOn || !is { // what comes later is only read now and then
				return all
			}
			h.last = maps.Clone(h.last)
			h.last[m.Name] = m
			if e.Type == watch.Deleted {
				delete(h.last, m.Name)
			}
			all = append(all, h.last)
		default:
			return all
		}
	}
}
