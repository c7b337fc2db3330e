package managerlease

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhyAManagerStandsOff(t *testing.T) {
	labelled := func(filter string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		if filter != "" {
			c.Labels = map[string]string{clusterv1.WatchLabel: filter}
		}
		return c
	}
	blue := Announcement{WatchFilter: "blue"}
	for name, tc := range map[string]struct {
		says    Announcement
		label   string
		cluster *clusterv1.Cluster
		want    Off
	}{
		"one that says nothing special looks at everything":   {says: Announcement{}},
		"one of its namespace looks at it":                    {says: Announcement{Namespace: "metal"}},
		"one of another namespace does not":                   {says: Announcement{Namespace: "other"}, want: Off{Because: "the one in ns watches namespace other alone", Person: "start a manager for namespace metal"}},
		"one of its filter looks at it":                       {says: blue, label: "blue"},
		"one of another filter does not":                      {says: blue, label: "red", want: Off{Because: "the one in ns watches only objects with the label cluster.x-k8s.io/watch-filter: blue", Person: "give it the label cluster.x-k8s.io/watch-filter: blue"}},
		"the label of its Cluster is enough, where it counts": {says: blue, cluster: labelled("blue")},
		"its own is too":                                      {says: blue, label: "blue", cluster: labelled("red")},
		"without either it does not":                          {says: blue, cluster: labelled(""), want: Off{Because: "the one in ns watches only objects with the label cluster.x-k8s.io/watch-filter: blue", Person: "give it, or its Cluster, the label cluster.x-k8s.io/watch-filter: blue"}},
		"one in teardown does not":                            {says: Announcement{Teardown: true}, want: Off{Because: "the one in ns is in teardown: it starts nothing, and releases checks"}},
		"of another namespace, teardown is not the reason":    {says: Announcement{Teardown: true, Namespace: "other"}, want: Off{Because: "the one in ns watches namespace other alone", Person: "start a manager for namespace metal"}},
	} {
		t.Run(name, func(t *testing.T) {
			obj := labelled(tc.label)
			obj.Namespace = "metal"
			var more []client.Object
			if tc.cluster != nil {
				more = append(more, tc.cluster)
			}
			m := Manager{Namespace: "ns", Alive: true, Announcement: &tc.says}
			got := m.StandsOff(obj, more...)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if covers := m.Covers(obj, more...); covers != (got == Off{} || tc.says.Teardown && tc.says.Namespace == "") {
				t.Errorf("covers it: %t, and stands off: %+v", covers, got)
			}
		})
	}
}
