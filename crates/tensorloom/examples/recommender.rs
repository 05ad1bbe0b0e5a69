//! Films for users: two tables of factors, learned from a few ratings.
//!
//! ```text
//! cargo run --release -p tensorloom --example recommender
//! ```

use tensorloom::Result;
use tensorloom::nn::Embedding;
use tensorloom::optimizer::Sgd;
use tensorloom::prelude::*;

/// Four factors and a bias for each user and each film.
#[derive(Module, Tree)]
pub struct Recommender {
    user: Embedding,
    film: Embedding,
    user_bias: Embedding,
    film_bias: Embedding,
}

impl Recommender {
    /// Small numbers to begin with.
    pub fn new(users: usize, films: usize) -> Recommender {
        let model = Recommender {
            user: Embedding::new(users, 4),
            film: Embedding::new(films, 4),
            user_bias: Embedding::new(users, 1),
            film_bias: Embedding::new(films, 1),
        };
        no_grad(|| model.parameters().iter().for_each(|p| drop(p.mul_(0.3))));
        model
    }

    /// The ratings of users for films.
    pub fn rate(&self, users: &Tensor, films: &Tensor) -> Tensor {
        let fit = (self.user.forward(users) * self.film.forward(films)).sum_axes(-1, false);
        fit + self.user_bias.forward(users).squeeze(-1) + self.film_bias.forward(films).squeeze(-1)
    }

    /// The films that a user would like best.
    pub fn best(&self, user: usize, count: usize) -> Result<Vec<i64>> {
        no_grad(|| {
            let all = self.film.weight.matmul(&self.user.weight.i(user)) + self.film_bias.weight.i((.., 0));
            all.topk(count, -1, true).1.to_vec()
        })
    }
}

/// Trains it on ratings; gives losses.
pub fn train(model: &Recommender, users: &Tensor, films: &Tensor, ratings: &Tensor, epochs: u64) -> Result<Vec<f32>> {
    let loader = DataLoader::new((users.clone(), films.clone(), ratings.clone()))?.batch_size(15).shuffle(11);
    let mut optimizer = Sgd::with_momentum(model.parameters(), 0.5, 0.9).weight_decay(1e-3);
    optimizer.nesterov = true;
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch) {
            let (users, films, ratings) = batch?;
            let loss = nn::mse_loss(&model.rate(&users, &films), &ratings);
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            losses.push(loss.item()?);
        }
    }
    Ok(losses)
}

fn main() -> Result<()> {
    manual_seed(9);
    let (users, films) = (randint(0, 12, 60), randint(0, 9, 60));
    let (a, b) = (randn((12, 2)), randn((9, 2)));
    let ratings = (a.i(&users) * b.i(&films)).sum_axes(-1, false).clamp(-2, 2);
    let model = Recommender::new(12, 9);
    let losses = train(&model, &users, &films, &ratings, 30)?;
    println!("loss {:.3} to {:.3}; user 0 likes films {:?}", losses[0], losses[losses.len() - 1], model.best(0, 3)?);
    Ok(())
}
