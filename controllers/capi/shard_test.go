package capi

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnObjectBelongsToOneShard(t *testing.T) {
	check := func(labels map[string]string) client.Object {
		c := &clusterv1.MachineHealthCheck{}
		c.Labels = labels
		return c
	}
	cluster := func(labels map[string]string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		c.Labels = labels
		return c
	}
	label := func(value string) map[string]string { return map[string]string{clusterv1.WatchLabel: value} }
	for name, tc := range map[string]struct {
		obj     client.Object
		cluster *clusterv1.Cluster
		of      string
	}{
		"by its own label":                       {check(label("east")), cluster(nil), "east"},
		"by that of its Cluster, if it has none": {check(nil), cluster(label("east")), "east"},
		"by its own, whatever its Cluster's":     {check(label("west")), cluster(label("east")), "west"},
		"an empty label is one":                  {check(label("")), cluster(label("east")), ""},
		"without either to none":                 {check(nil), cluster(nil), ""},
		"without a Cluster by its own":           {check(label("east")), nil, "east"},
		"without a Cluster or a label to none":   {check(nil), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, value := range []string{"east", "west"} {
				if got := Covers(value, tc.obj, tc.cluster); got != (tc.of == value) {
					t.Errorf("a manager of %s covers it: %t", value, got)
				}
			}
			if !Covers("", tc.obj, tc.cluster) {
				t.Error("a manager without a filter does not cover it")
			}
		})
	}
}
