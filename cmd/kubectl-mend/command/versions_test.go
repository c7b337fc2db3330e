package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// announced is a lease by which a manager of a version says at noon that it runs.
func announced(namespace, version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerlease.LeaseName, Annotations: map[string]string{
			mendv1.ManagerAnnotation: fmt.Sprintf(`{"version":%q,"unclaimed":"observe"}`, version),
		}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("one"), RenewTime: ptr.To(metav1.NewMicroTime(noon)), LeaseDurationSeconds: ptr.To(int32(60)),
		},
	}
}

func TestAManagerOfAnotherVersionIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		own      string
		managers map[string]string // versions by namespace
		says     string
	}{
		"the same":               {"v1.2.3", map[string]string{"kubemend-system": "v1.2.3"}, ""},
		"another one":            {"v1.2.3", map[string]string{"kubemend-system": "v1.2.2"}, "there is version v1.2.2 in namespace kubemend-system"},
		"one shard of two":       {"v1.2.3", map[string]string{"a": "v1.2.3", "b": "v1.1.0"}, "there is version v1.1.0 in namespace b"},
		"both shards":            {"v1.2.3", map[string]string{"a": "v1.2.4", "b": "v1.1.0"}, "there is version v1.2.4 in namespace a, and version v1.1.0 in namespace b"},
		"our version is not set": {"dev", map[string]string{"kubemend-system": "v1.2.3"}, ""},
		"theirs is not set":      {"v1.2.3", map[string]string{"kubemend-system": "dev"}, ""},
		"there is no manager":    {"v1.2.3", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, problems := genericiooptions.NewTestIOStreams()
			o := &Options{IOStreams: streams, Name: "kubectl mend", Config: genericclioptions.NewConfigFlags(false), Clock: clock.RealClock{}}
			o.Config.ClusterName = nil
			o.read = func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
				w := snapshot.New()
				w.Clock = clocktesting.NewFakePassiveClock(noon)
				for namespace, version := range tc.managers {
					if err := w.Add(announced(namespace, version)); err != nil {
						return nil, err
					}
				}
				return w, nil
			}
			root := o.root(tc.own)
			root.SetArgs([]string{"status", "-A"})
			if code := Run(t.Context(), root, streams); code != Done {
				t.Fatalf("exit code %d: %s", code, problems)
			}
			got := problems.String()
			if tc.says == "" && got != "" || !strings.Contains(got, tc.says) || strings.Count(got, "\n") > 1 {
				t.Errorf("it says\n%s\nwant %q", got, tc.says)
			}
			o.sayVersions([]managerlease.Manager{{Alive: true, Announcement: &managerlease.Announcement{Version: "v9"}}})
			if tc.says != "" && problems.String() != got {
				t.Errorf("it is said again:\n%s", problems)
			}
		})
	}
}

func TestAManagerThatIsGoneIsOfNoVersion(t *testing.T) {
	gone := []managerlease.Manager{{Namespace: "a", Announcement: &managerlease.Announcement{Version: "v1.1.0"}}, {Namespace: "b", Alive: true}}
	if others := otherVersions("v1.2.3", gone); len(others) > 0 {
		t.Errorf("told of %v", others)
	}
}
