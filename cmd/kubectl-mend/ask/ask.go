// Package ask asks the controllers' own functions what they think of a world in memory. It decides nothing.
package ask

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/look"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/request"
)

// Settings are what a manager was told by its flags, as far as answers depend on it.
type Settings struct {
	Unclaimed   machinehealthcheck.Unclaimed
	WatchFilter string
}

// Asker asks about one world at one moment.
type Asker struct {
	World    *snapshot.World
	Now      time.Time
	Settings Settings

	machines *machinehealthcheck.Reconciler
}

// New returns one who asks about w at now as a manager with these settings would.
func New(ctx context.Context, w *snapshot.World, now time.Time, settings Settings) (*Asker, error) {
	if err := machinehealthcheck.AddIndexes(ctx, w); err != nil {
		return nil, err
	}
	reader := w.ReadOnly()
	return &Asker{
		World: w, Now: now, Settings: settings,
		machines: &machinehealthcheck.Reconciler{
			Client: reader, Clusters: w.Clusters(), Requests: &request.Requests{Client: reader, Live: reader},
			Kinds: snapshot.NewKinds[*request.Metadata](w), Clock: clock.RealClock{},
			Unclaimed: settings.Unclaimed, WatchFilterValue: settings.WatchFilter,
		},
	}, nil
}
