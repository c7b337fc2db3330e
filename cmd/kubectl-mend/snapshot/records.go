package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

var recordGVK = mendv1.GroupVersion.WithKind("RemediationRecord")

// recordsKept is how many RemediationRecords a file has at most: the newest.
const recordsKept = 5000

// EachRecord reads the RemediationRecords of a namespace, or of all if that is empty, as one stream, and gives each of them away as soon as it was parsed: on
// all processors, so give has to be safe for concurrent use. None is in memory for longer than give keeps it. Where the kind is not installed, the error is
// one that apierrors.IsNotFound recognizes.
func EachRecord(ctx context.Context, config *rest.Config, namespace string, give func(*mendv1.RemediationRecord)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("reach the management cluster: %w", err)
	}
	scheme := k8sruntime.NewScheme()
	if err := mendv1.AddToScheme(scheme); err != nil {
		return err
	}
	reader, err := apiutil.RESTClientForGVK(recordGVK, false, false, config, serializer.NewCodecFactory(scheme), httpClient)
	if err != nil {
		return fmt.Errorf("reach the management cluster: %w", err)
	}
	list, err := reader.Get().NamespaceIfScoped(namespace, namespace != "").Resource("remediationrecords").
		VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = list.Close() }() // it was only read
	var parsing errgroup.Group
	parsing.SetLimit(runtime.GOMAXPROCS(0))
	err = split(list, func(object []byte) {
		parsing.Go(func() error {
			is := &mendv1.RemediationRecord{}
			if err := utiljson.Unmarshal(object, is); err != nil {
				return err
			}
			give(is)
			return nil
		})
	})
	return errors.Join(err, parsing.Wait())
}

// newest are those of a task that were created last, if it is to keep no more; that there were more is noted.
func (r *reading) newest(t task, all []client.Object) []client.Object {
	if t.most == 0 || len(all) <= t.most {
		return all
	}
	r.snapshot.Lacks(plural(t.gvk.Kind), explain.OnlyNewest(t.most, len(all)))
	slices.SortFunc(all, func(a, b client.Object) int {
		return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b)))
	})
	return all[:t.most]
}

// records are the RemediationRecords, if they are wanted.
func (r *reading) records() []task {
	if !r.Records {
		return nil
	}
	return []task{{gvk: recordGVK, namespace: r.Namespace, most: recordsKept, keep: func(o client.Object) bool {
		record, is := o.(*mendv1.RemediationRecord)
		return r.Cluster == "" || is && record.Spec.Target.ClusterName == r.Cluster
	}}}
}
