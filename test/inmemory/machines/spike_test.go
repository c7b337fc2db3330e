package machines

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
	"github.com/kubemend/kubemend/test/inmemory/manager"
)

func TestMain(m *testing.M) {
	if os.Getenv("V") == "" {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	} else { ctrl.SetLogger(klog.Background()) }
	os.Exit(m.Run())
}

func TestSpike(t *testing.T) {
	manager.Test(t, func(t *testing.T) {
		s := apiserver.New(manager.Host, manager.Kinds()...)
		defer s.Close()
		scheme := runtime.NewScheme()
		_ = clientgoscheme.AddToScheme(scheme)
		_ = clusterv1.AddToScheme(scheme)
		c, err := client.New(s.Config(), client.Options{Scheme: scheme})
		if err != nil { t.Fatal(err) }
		if err := c.Create(t.Context(), builders.Namespace("ns")); err != nil { t.Fatal(err) }
		stop := manager.Start(t, "--unclaimed-machine-health-checks=act")
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		for _, call := range s.Calls(func(c apiserver.Call) bool { return true }) { t.Log(call.Verb, call.Resource, call.Name, call.Status, call.Manager) }
	})
}
