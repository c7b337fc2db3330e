module github.com/kubemend/kubemend/hack/dashboards

go 1.26.0

toolchain go1.26.8
