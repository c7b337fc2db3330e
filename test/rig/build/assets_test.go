package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const saysEtcd = "echo etcd Version: 3.6.4; echo Git SHA: Not provided; echo Go Version: go1.24.11"

func TestAssetsThatTheRigCannotUseAreBuilt(t *testing.T) {
	for name, c := range map[string]struct{ program, says, why string }{
		"a kube-apiserver of an older minor version": {
			"kube-apiserver", "echo Kubernetes v1.31.0", "has kube-apiserver v1.31.0, the rig needs v1.36",
		},
		"a kube-apiserver of a newer minor version": {"kube-apiserver", "echo Kubernetes v1.37.0", "has kube-apiserver v1.37.0, the rig needs v1.36"},
		"an etcd two minor versions older":          {"etcd", "echo etcd Version: 3.4.23", "has etcd 3.4.23, the rig needs v3.6"},
		"an etcd that ends with an error":           {"etcd", "echo 3.6.8; exit 1", "has a file etcd that does not say its version (run it with --version: exit status 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.asset(c.program, c.says)
			asked, said := y.mustProvide(c.program)
			y.equal("built", asked, []string{c.program})
			y.equal(c.program, y.in(c.program), "built "+c.program)
			if !strings.Contains(said, "rig: KUBEBUILDER_ASSETS "+c.why) || !strings.Contains(said, ": building it\n") {
				t.Errorf("it does not say why:\n%s", said)
			}
		})
	}
}

func TestAChangeOfKubebuilderAssetsIsNoticed(t *testing.T) {
	y := newYard(t)
	y.mustProvide("etcd", "kube-apiserver")
	y.asset("etcd", saysEtcd)
	folder := y.assets

	asked, _ := y.mustProvide("etcd", "kube-apiserver")
	y.equal("built when it is on", asked, []string(nil))
	y.equal("etcd when it is on", y.in("etcd"), "asset")

	y.assets = ""
	asked, _ = y.mustProvide("etcd", "kube-apiserver")
	y.equal("built when it is off", asked, []string(nil))
	y.equal("etcd when it is off", y.in("etcd"), "built etcd")

	y.assets = folder
	y.mustProvide("etcd", "kube-apiserver")
	y.equal("etcd when it is on again", y.in("etcd"), "asset")
	if err := os.Remove(filepath.Join(folder, "etcd")); err != nil {
		t.Fatal(err)
	}
	y.mustProvide("etcd", "kube-apiserver")
	y.equal("etcd when the asset is gone", y.in("etcd"), "built etcd")
}
