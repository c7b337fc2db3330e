package managerlease

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
		want    OffReason
	}{
		"one that says nothing special looks at everything":   {says: Announcement{}},
		"one of its namespace looks at it":                    {says: Announcement{Namespace: "metal"}},
		"one of another namespace does not":                   {says: Announcement{Namespace: "other"}, want: OtherNamespace},
		"one of its filter looks at it":                       {says: blue, label: "blue"},
		"one of another filter does not":                      {says: blue, label: "red", want: OtherLabel},
		"the label of its Cluster is enough, where it counts": {says: blue, cluster: labelled("blue")},
		"its own is too":                                      {says: blue, label: "blue", cluster: labelled("red")},
		"its own counts before that of its Cluster":           {says: blue, label: "red", cluster: labelled("blue"), want: OtherLabel},
		"without either it does not":                          {says: blue, cluster: labelled(""), want: OtherLabel},
		"one in teardown does not":                            {says: Announcement{Teardown: true}, want: InTeardown},
		"of another namespace, teardown is not the reason":    {says: Announcement{Teardown: true, Namespace: "other"}, want: OtherNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			obj := labelled(tc.label)
			obj.Namespace = "metal"
			m := Manager{Namespace: "ns", Alive: true, Announcement: &tc.says}
			got := m.StandsOff(obj, tc.cluster)
			if got.Reason != tc.want || got.Unknown() || got.Namespace != "metal" || got.OrCluster != (tc.cluster != nil && tc.label == "") {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
			if covers := m.Covers(obj, tc.cluster); covers != (got.Reason == "" || tc.says.Teardown && tc.says.Namespace == "") {
				t.Errorf("covers it: %t, and stands off: %+v", covers, got)
			}
		})
	}
}
